"""Simulate a campaign as time passes: e-mails are sent according to queues, waits and daily limits, and people respond.

chance   the responses to an e-mail: rates, draws that depend only on their names, and future events in order of time
state    the counts of mailboxes per day, campaigns in motion, and cheap copies of all of it
engine   advances the state
control  `fake.sim`: scripts and listeners of a test

The state in a world file is read and written by `outreach_async.fake.world_file`.
"""
