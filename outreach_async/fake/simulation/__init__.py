"""Simulate campaigns as time passes: send e-mails within waits and daily limits, and draw the responses of contacts.

chance   the kinds of events, response rates and random draws
state    counts per mailbox and day, queues of campaigns, and copies of this state
engine   processes every event up to a given time
script   `fake.sim`: scripted responses, and listeners for events

`outreach_async.fake.world_file` reads and writes the state in world files.
"""
