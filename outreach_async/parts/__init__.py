r"""Import in parts, on several processes or machines.

`plan` divides files into parts, `import_part` imports one part, and
`merge_reports` adds up the results. A process pool, or an engine such as
Dask, Ray or Spark, can run the parts in any order and at the same time:

```python
import os
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

from outreach_async.parts import Connection, import_part, merge_reports, plan

if __name__ == "__main__":
    Path("may.csv").write_text("E-mail,Firm\nann@company.example,Acme\n,Acme\ncy@company.example,\n")
    Path("june.csv").write_text("E-mail\nANN@company.example\ndee@company.example\n")
    made = plan(["may.csv", "june.csv"], overrides={"Firm": "company_name"})
    print(made.rows, "rows in parts of", [part.rows for part in made.parts])
    # -> 5 rows in parts of [2, 1, 2]
    connection = Connection(
        base_url=os.environ["OUTREACH_BASE_URL"],
        workspace=os.environ["OUTREACH_WORKSPACE"],
    )
    with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as pool:
        jobs = [pool.submit(import_part, part, "journals", connection) for part in made.parts]
        report = merge_reports(job.result() for job in jobs)
    print(report.outcomes["added"], "added,", report.outcomes["skipped"], "skipped,", report.uncertain, "uncertain")
    # -> 3 added, 1 skipped, 0 uncertain
    for row in report.failures:
        print(row.file, row.line, row.message)
    # -> .../may.csv 3 email: expected an address, got a blank string; ...
```

Choose the smallest tool that is enough
---------------------------------------
    one machine, any number of rows      `create_many` with a journal, or
                                         `outreach-async import`. In a
                                         second of CPU time, one process
                                         creates about 1,000 contacts over
                                         httpx, 2,000 over aiohttp, and
                                         7,000 over sockets with httptools
                                         (see Capacity)
    one machine, more than one CPU       `outreach-async import --processes 4`,
                                         or
                                         `outreach_async.parts.processes`
    files on an object store             this package, with URLs of the
                                         files; one process sends hundreds
                                         of requests per second
    machines that may be lost            this package and an engine, with
                                         the journals on storage that
                                         outlives the machines

Capacity
--------
An import takes `contacts / rate` seconds, where `rate` is the sum of what
the service permits for each workspace, until workers are the limit. A
worker imports one part at a time, takes 1.3 ms of CPU time for a row
(measured with the default transport on Dask; half of that with aiohttp)
and 100 MB of memory, for any number of rows. With hosts of four CPUs that
are used to 70 %:

    contacts     workspaces  permitted  workers  hosts  hours
    1,000,000             1      100/s        1      1    2.8
    100,000,000           1    2,000/s        3      1     17
    10,000,000          100       10/s       12      1     23
    100,000,000       1,000       10/s      116      2     24

When the service is not the limit, workers of a process pool with journals
in files create this many contacts per second (the range of three runs on
two CPUs, which the service shares; eight workers are computed from the CPU
time of a row):

    workers              httpx            aiohttp  sockets, httptools
    1                   850 to 980    1,900 to 2,800    7,000 to 10,000
    2               1,400 to 2,200    3,600 to 6,000   11,000 to 13,000
    8 on 8 CPUs     6,500 to 9,700  17,000 to 27,000   56,000 to 64,000

Each workspace needs its own plan, and its own calls of `import_part` or
`DaskImport` with its own `journal`. A journal on an object store takes 19
bytes per row and 95 bytes per object, and object stores charge per write.
A million rows at 100/s take 15,000 objects, and slower imports more per
row.

Plan
----
Each row group of a Parquet file becomes a part. CSV and JSON Lines files
are divided into as many `parts` as you ask for; by default, each file is
one part, as are workbooks, compressed files and text in an encoding such
as UTF-16. `find_files` lists those that match a pattern. Files are paths,
or URLs of objects (`s3://bucket/key`, `gs://`, `az://`; extra `lake`;
credentials come from the environment). Only S3 is tested, on a simulated
server. Rows whose e-mail occurs more than once are moved to one more part,
`repeats`, which sends them in the order of the files, one at a time per
e-mail. E-mails are compared as `create_many` compares them. No two parts
share an e-mail, so the resulting contacts do not depend on which part runs
first.

The options of the import belong to the plan. `checks` are the levels of
the checks, as for `--check` of the command, and `mapping` is a mapping
file, as `importer.read_mapping` reads it. `repeats="error"` rejects a row
if its e-mail occurs in the previous 10,000 rows of the part `repeats`. To
map columns by the labels of the workspace's fields, pass
`fields=await client.workspaces.fields()`. To recognise a column with names
of campaigns, pass `workspace` and `list_campaigns`.

A plan is a value without secrets, and can be pickled or stored as JSON
(`to_json`, `ImportPlan.from_json`). It records the size of each file, and
its modification time or, for an object, its entity tag. A part whose file
has changed is rejected, so copies of a file on other machines must have
the same modification time. Planning reads JSON Lines files twice, of a
Parquet file only the e-mail column, and all other files once; files that
are divided are read once more. Its memory grows by at most 8 bytes per
row, and its temporary file by 16.

Lists of people who must not be written to (`exclude`) are passed to
`check` and to the import, and are no part of the plan. A list with a key
is sent to the workers of a cluster with its key.

`check` reads all files of a plan in this process before anything is sent.
It finds what the check of one file finds: rows that are rejected, people
who must not be written to (a row of any file excludes all rows of its
person), and values that are left out or may be wrong. It reads about as
many rows per second as the check of one file.

Journals
--------
Each part has a journal, named after the part, in the folder that you pass.
If a worker dies, run its part again, on any machine that can access the
same folder: the part resumes, rows that may have been sent are sent again,
and their outcomes are uncertain. A finished part sends nothing and returns
the same report. If a part runs twice at the same time, the second run
fails, because the journal is in use. On network file systems with
unreliable locks, make sure that your engine never does so. The journals
below a URL such as `s3://bucket/prefix` (extra `lake`) have no locks: the
later run of a part takes over its journal, and the earlier one stops with
a `JournalError`.

A folder belongs to one plan, one workspace and one address of the service,
and refuses parts for another. Use a new folder for a new plan. If the old
plan may have sent rows of the new one, or if a journal is lost, also pass
`earlier="unknown"`: `skipped` is then uncertain. Without it, a part
reports contacts that an earlier run created as certainly `skipped`.

Results
-------
`import_part` returns when every row of the part has an outcome. Otherwise
it raises: `BulkSuspended` if the service was down or throttling for too
long (run the part again later), `BulkStopped` if an error affects every
row, or if the service rejects the first 50 rows of the part (fix its cause
first, or pass `Connection(stop_after_rejects=None)`; the rejected rows are
sent again). Errors and reports can be pickled. The import is complete if
`report.rows == made.rows`. A report lists the first 100 failed rows of
each part by file and line.

`results_of(part, folder)` yields what became of each row of a part, for
example the ids of new contacts, from its journal and its files, for
`ResultsFile` of `outreach_async.importer`. `RejectsTable` gives the failed
rows of files with different columns one table. The commands
`import --processes` and `import --dask` do all this with the options that
`import` has on one machine: `--dry-run`, `--check`, `--mapping`,
`--save-mapping`, `--findings`, `--rejects` and `--results`. Only a ledger
has no meaning for parts. The command `outreach-async report FOLDER` reads
the files of the plan: `--rejects rejects.csv` writes the failed rows with
their cells, for another import, `--results results.csv` writes the
outcomes of all rows, and `--uncertain` lists the uncertain ones.

Rate and key
------------
By default, each part learns the permitted rate by itself, and parts that
run at the same time interfere with each other. Share a rate with
`outreach_async.parts.processes` or `outreach_async.parts.dask`, or pass
`rate=RedisRate(...)` to `import_part`. Or divide the limit by the number
of parts that run at the same time, and pass the quotient as
`Connection(rate=...)`.

The owner key is read from `OUTREACH_OWNER_KEY` in the environment of the
worker, and is in no argument and no result. Set the variable where the
worker starts. Do not use an engine's option for environment variables,
such as Ray's `runtime_env` or Spark's `spark.executorEnv`: the engine
would store the key and show it in its web pages.

Engines
-------
For Dask, use `outreach_async.parts.dask` (extra `dask`): its workers share
one rate, and it submits a part again if Dask stops retrying it. Ray and
Spark can run `import_part` directly; the examples below were run with Ray
2.60 and Spark 4.3 on one machine. Turn on retries, because a part may run
any number of times. Turn off speculative execution.

    # Ray
    remote = ray.remote(max_retries=10, retry_exceptions=[BulkSuspended])
    task = remote(import_part)
    runs = [task.remote(part, folder, connection) for part in made.parts]
    report = merge_reports(ray.get(runs))

    # Spark
    parts = spark.sparkContext.parallelize(made.parts, len(made.parts))
    runs = parts.map(lambda part: import_part(part, folder, connection))
    report = merge_reports(runs.collect())
"""

from outreach_async.parts._planning import ImportPlan, Part, check, plan
from outreach_async.parts._stored_files import find_files
from outreach_async.parts._task import (
    Connection,
    FailedRow,
    ImportReport,
    RejectsTable,
    find_part,
    import_part,
    merge_reports,
    results_of,
)

__all__ = [
    "Connection",
    "FailedRow",
    "ImportPlan",
    "ImportReport",
    "Part",
    "RejectsTable",
    "check",
    "find_files",
    "find_part",
    "import_part",
    "merge_reports",
    "plan",
    "results_of",
]
