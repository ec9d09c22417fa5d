"""A candidate of kazoo's: says `stands` and `leads`, and leaves when it reads a line."""
import sys

from kazoo.client import KazooClient

hosts, path, name, recipe = sys.argv[1:]
client = KazooClient(hosts=hosts, timeout=4)
client.start()


def say(word):
    print(word, flush=True)


def lead():
    say("leads")
    sys.stdin.readline()


say("stands")
if recipe == "election":
    client.Election(path, name).run(lead)
else:
    with client.Lock(path, name):
        lead()
say("left")
client.stop()
