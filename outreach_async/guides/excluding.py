"""Whom not to write to.

An e-mail to somebody who must not get one cannot be taken back. The
service has no list of these people, and knows one workspace at a time. So
this package decides before a row is sent. Such a row is `excluded`, with
the reason: nothing is sent, what the service has stays, and it is no
failure. The steps below are in the order in which most people need them.

People who said no
------------------
A column such as Unsubscribed, Accepts Marketing or Email Status forbids
the rows of a person, without an option (see `outreach_async.importer`).
Nothing else is needed for a file whose own columns say it.

Lists of people and domains
---------------------------
Customers, competitors and people who complained are in other files:

    outreach-async import people.csv --exclude blocked.csv

A list is a CSV, JSON Lines or Parquet file or a workbook with a column of
e-mails or of domains, or a text file with one address or domain in each
line. A domain stands for its addresses, but not for those of its
sub-domains. A list in `outreach.toml` applies to `import`, to `contacts
create` and to the MCP server, so that nobody forgets the option. A program
passes its lists itself:

    exclude = ["blocked.csv"]

A list need not have addresses. In a file with one HMAC-SHA256 in each
line, nobody can read them, and `blocked.txt.key` beside it has the key. To
add addresses to such a list: `importer.add_exclusions`. In Python,
`exclude` takes lists, addresses and functions:

```python
import anyio
from outreach_async import OutreachClient
from outreach_async.importer import add_exclusions, read_exclusions


async def night(rows: list[dict[str, str]]) -> None:
    exclude = [read_exclusions("blocked.txt"), "competitor.example", lambda email: email.startswith("test")]
    client = OutreachClient()
    async with client, client.contacts.create_many(rows, ledger="acme.ledger", changed="ignore", exclude=exclude) as outcomes:
        async for outcome in outcomes:
            if outcome.status == "excluded":
                print(outcome.contact["email"], "-", outcome.error)
    print(outcomes.report.ledger.excluded, "of", outcomes.report.rows, "rows are excluded")


add_exclusions("blocked.txt", ["ann@company.example"])
emails = "Ann@Company.example", "bo@competitor.example", "cy@company.example"
anyio.run(night, [{"email": email} for email in emails])
# -> Ann@Company.example - the list blocked.txt has the address
# -> bo@competitor.example - the list exclude has the domain competitor.example
# -> 2 of 3 rows are excluded
```

A run whose list cannot be read sends nothing. A list may change while a
run is suspended: the resumed run uses it as it is then.

A list that will bounce
-----------------------
Bounces of a bad list harm the mailboxes of all others. A gate judges the
whole file before its first row is sent:

    outreach-async import people.csv --gate=mx --max-risk 3% --findings risky.csv

Addresses that will bounce are not sent: those that are invalid, that a
verifier or an earlier bounce (`--bounced FILE`) rejects, and those of
domains without a mail server. If more than 3 % of the rows are risky, with
disposable addresses and those of roles, nothing is sent, and `risky.csv`
has every one of them. `mx` looks up mail servers, and so tells the domains
of the list to a name server; plain `--gate` sends nothing to anybody.

People whom another client writes to
------------------------------------
For an agency, a second e-mail from another client is the mistake. A hold
compares a list with the ledgers of all clients:

    outreach-async import people.csv --ledger acme.ledger --changed ignore --hold 90d --held-by agency

`agency` is a group of workspaces in `outreach.toml`, each with its ledger:

    [workspaces]
    acme = { id = "space_1", groups = ["agency"], ledger = "acme.ledger" }
    bolt = { id = "space_2", groups = ["agency"], ledger = "bolt.ledger" }

A person whom one of these workspaces has added or updated in the last 90
days is not added to another; the reason says who holds the person, since
when and until when. `--hold-domains` holds the colleagues, too. If two
workspaces import the same person at the same moment, one of them wins.

People who ask to be forgotten
------------------------------
GDPR and CCPA give people the right to it.

    outreach-async erase --from requests.txt --path . --and-exclude blocked.txt

The command removes what ledgers, journals, histories, rejects, results and
findings have of these people. A ledger then no longer holds them, so name
the list of marks in `exclude` of `outreach.toml`: it excludes them from
later imports. The record says what was removed where, which other files
still name them (exit code 3), such as `requests.txt`, and what the service
still has: only its support can delete that.

The morning after
-----------------
With the ledgers in `outreach.toml`, or with `--ledger acme.ledger`, the
command `brief` shows by client how many people the last import did not
write to: excluded, held and gated. If more e-mails of a campaign bounce
than the gate predicted, rule `OA214` says so: the list, or its verifier,
was worse than it looked.
"""
