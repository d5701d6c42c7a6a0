"""What a run records, to be resumed and to be compared with: `journal` is of one run, `ledger` of all runs."""
