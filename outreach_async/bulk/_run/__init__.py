"""Run the rows of an input: the parts that wait. They use journals and ledgers, which know no run."""
