"""Simulate campaigns: send e-mails according to wait times and daily limits, and generate the reactions of contacts.

state      events, random reactions, counts per mailbox and day, and queues of campaigns
simulator  processing of events up to a given time, and `fake.sim`: scripted reactions, and listeners for events

`outreach_async.fake.world_file` reads and writes the state in world files.
"""
