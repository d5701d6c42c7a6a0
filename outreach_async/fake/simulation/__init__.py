"""Simulate a campaign as time passes: e-mails are sent according to queues, waits and daily limits, and people respond.

events   future events, in order of time
chance   the responses to an e-mail: rates, and draws that depend only on their names
flows    a campaign's queue and counts
ledgers  a mailbox's counts per day, and the sums over its windows
state    the state as a whole, with cheap copies
engine   advances the state
control  `fake.sim`: scripts and listeners of a test
file     the state in a world file
"""
