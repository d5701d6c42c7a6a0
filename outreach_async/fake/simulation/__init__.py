"""Simulate campaigns: send e-mails according to wait times and daily limits, and generate the reactions of contacts.

chance   the kinds of events, reaction rates and random draws
state    counts per mailbox and day, queues of campaigns, and copies of this state
engine   processes every event up to a given time; `fake.sim`: scripted reactions, and listeners for events

`outreach_async.fake.world_file` reads and writes the state in world files.
"""
