"""What happens while time passes: e-mails leave by the queue, the waits and the daily limits, and people answer them.

events   what is to happen, in order of time
chance   what becomes of an e-mail: rates, and draws that depend on nothing but their names
flows    a campaign's queue and counts
ledgers  a mailbox's counts by day, and the windows over them
state    all of it, copied in no time
engine   moves it on
control  `fake.sim`: what a test says and sees of it
file     its form in a world file
"""
