"""A client of the global transaction coordinator with nothing but sockets.

Written from KIP.md and the protocol guide of Apache Kafka, standard library
only, so that whatever it needs and those two do not say is found out here.

  gtc_sockets.py --gtc HOST:PORT --cluster NAME=HOST:PORT --cluster NAME=HOST:PORT
                 --topic TOPIC --id GLOBAL_TRANSACTIONAL_ID

Runs one session over the clusters (transactions that commit, abort, are ended
by the client itself, have one participant, and repeats), then a second session
that fences it, and reads the topic back. Prints one JSON object a line for each
step: {"step": NAME, ...}. An answer that is an end of the road is an error on
stderr and exit status 1.
"""

import argparse
import json
import sys
import time
import uuid

from gtc_messages import (
    CONCURRENT_TRANSACTIONS, CONTROL, COORDINATOR_LOAD_IN_PROGRESS, COORDINATOR_NOT_AVAILABLE, NO_TIMEOUT, NOT_COORDINATOR,
    PARTICIPANT_NOT_AVAILABLE, PATIENCE, TRANSACTIONAL, Failed, Node, Reader, batches, record_batch, until,
)

FORGET = 2
NOT_LED_YET = (3, 6)  # UNKNOWN_TOPIC_OR_PARTITION, NOT_LEADER_OR_FOLLOWER: of a topic that was just created

# --- a participant -------------------------------------------------------------


class Cluster:
    """A participant cluster with this client's producer on it."""

    def __init__(self, name, address, topic, transactional_id):
        self.name, self.topic, self.transactional_id = name, topic, transactional_id
        self.seed, self.nodes = Node(address), {}
        self.producer_id = self.epoch = -1
        self.sequence = 0
        meta = until(f"topic {topic} on {name}", self.metadata)
        self.id = meta["ClusterId"]
        brokers = {b["NodeId"]: (b["Host"], b["Port"]) for b in meta["Brokers"]}
        self.leader = self.node(brokers[meta["Topics"][0]["Partitions"][0]["LeaderId"]])
        self.transaction_version = transaction_version(self.seed)
        self.coordinator = None

    def metadata(self):
        meta = self.seed.ask("Metadata", Topics=[{"Name": self.topic}], AllowAutoTopicCreation=False,
                             IncludeClusterAuthorizedOperations=False, IncludeTopicAuthorizedOperations=False)
        topic = meta["Topics"][0]
        return meta if topic["ErrorCode"] == 0 and topic["Partitions"][0]["ErrorCode"] == 0 else None

    def node(self, address):
        if address not in self.nodes:
            self.nodes[address] = Node("%s:%d" % address)
        return self.nodes[address]

    def ask_coordinator(self, api, code_of, **values):
        """Asks the transaction coordinator until its answer is none of Kafka's "not now"."""
        def attempt():
            if self.coordinator is None:
                found = self.seed.ask("FindCoordinator", KeyType=1, CoordinatorKeys=[self.transactional_id])["Coordinators"][0]
                if found["ErrorCode"] in (COORDINATOR_NOT_AVAILABLE, COORDINATOR_LOAD_IN_PROGRESS):
                    return None
                check("FindCoordinator", found)
                self.coordinator = self.node((found["Host"], found["Port"]))
            try:
                answer = self.coordinator.ask(api, TransactionalId=self.transactional_id, **values)
            except OSError:
                self.coordinator = None
                raise
            code = code_of(answer)
            if code in (NOT_COORDINATOR, COORDINATOR_NOT_AVAILABLE):
                self.coordinator = None
            if code in (NOT_COORDINATOR, COORDINATOR_NOT_AVAILABLE, COORDINATOR_LOAD_IN_PROGRESS, CONCURRENT_TRANSACTIONS):
                return None
            check(f"{api} on {self.name}", {"ErrorCode": code})
            return answer
        return until(f"{api} on {self.name}", attempt)

    def init_producer(self):
        answer = self.ask_coordinator("InitProducerId", lambda a: a["ErrorCode"], TransactionTimeoutMs=NO_TIMEOUT, ProducerId=-1, ProducerEpoch=-1)
        self.go_on_with(answer["ProducerId"], answer["ProducerEpoch"])

    def go_on_with(self, producer_id, epoch):
        """Batch sequences begin at 0 under each (producer id, epoch)."""
        if (producer_id, epoch) != (self.producer_id, self.epoch):
            self.producer_id, self.epoch, self.sequence = producer_id, epoch, 0

    def produce(self, *values):
        self.ask_coordinator("AddPartitionsToTxn", lambda a: a["Results"][0]["Partitions"][0]["ErrorCode"], ProducerId=self.producer_id,
                             ProducerEpoch=self.epoch, Topics=[{"Name": self.topic, "Partitions": [0]}])
        batch = record_batch(self.producer_id, self.epoch, self.sequence, values)

        def attempt():
            answer = self.leader.ask("Produce", TransactionalId=self.transactional_id, Acks=-1, TimeoutMs=int(PATIENCE * 1000), TopicData=[
                {"Name": self.topic, "PartitionData": [{"Index": 0, "Records": batch}]}])["Responses"][0]["PartitionResponses"][0]
            return None if answer["ErrorCode"] in NOT_LED_YET else answer
        check(f"Produce on {self.name}", until(f"Produce on {self.name}", attempt))
        self.sequence += len(values)

    def abort(self):
        """Ends the transaction without the global coordinator, as a client may before it has asked that."""
        api = "EndTxn 5" if self.transaction_version >= 2 else "EndTxn"
        answer = self.ask_coordinator(api, lambda a: a["ErrorCode"], ProducerId=self.producer_id, ProducerEpoch=self.epoch, Committed=False)
        if api == "EndTxn 5":
            self.go_on_with(answer["ProducerId"], answer["ProducerEpoch"])

    def participant(self):
        return {"ClusterId": self.id, "ProducerId": self.producer_id, "ProducerEpoch": self.epoch}

    def read_committed(self):
        """All values that are visible once no transaction is open on the partition."""
        return until(f"the last stable offset on {self.name}", self.try_read)

    def try_read(self):
        offset, values, aborted_from = 0, [], set()
        while True:
            got = self.fetch(offset)
            if got is None or got["LastStableOffset"] < got["HighWatermark"]:
                return None
            aborted_from |= {(a["ProducerId"], a["FirstOffset"]) for a in got["AbortedTransactions"] or []}
            progress = offset
            for base, last, attributes, producer_id, records in batches(got["Records"] or b""):
                progress = base + last + 1
                if attributes & CONTROL:
                    # Ends what is open of this producer: later records of it are of another transaction.
                    aborted_from = {(p, first) for p, first in aborted_from if p != producer_id or first > base}
                    continue
                aborted = attributes & TRANSACTIONAL and any(p == producer_id and first <= base for p, first in aborted_from)
                values += [value.decode() for delta, _, value in records if not aborted and base + delta >= offset]
            if progress == offset or progress >= got["LastStableOffset"]:
                return values
            offset = progress

    def fetch(self, offset):
        answer = self.leader.ask("Fetch", ReplicaId=-1, MaxWaitMs=100, MinBytes=1, MaxBytes=1 << 30, IsolationLevel=1, SessionId=0, SessionEpoch=-1,
                                 Topics=[{"Topic": self.topic, "Partitions": [{"Partition": 0, "CurrentLeaderEpoch": -1, "FetchOffset": offset,
                                          "LastFetchedEpoch": -1, "LogStartOffset": -1, "PartitionMaxBytes": 1 << 20}]}],
                                 ForgottenTopicsData=[], RackId="")
        check("Fetch", answer)
        partition = answer["Responses"][0]["Partitions"][0]
        if partition["ErrorCode"] in NOT_LED_YET:
            return None
        check(f"Fetch on {self.name}", partition)
        return partition


def transaction_version(node):
    """The finalized feature transaction.version: tag 2 of ApiVersions."""
    _, tags = node.ask_with_tags("ApiVersions", ClientSoftwareName="gtc-sockets", ClientSoftwareVersion="1")
    features = Reader(tags[2]).value([("Name", "string"), ("MaxVersionLevel", "int16"), ("MinVersionLevel", "int16")]) if 2 in tags else []
    return {f["Name"]: f["MaxVersionLevel"] for f in features}.get("transaction.version", 0)


def check(what, answer):
    if answer["ErrorCode"] != 0:
        raise Failed(f"{what}: error {answer['ErrorCode']}: {answer.get('ErrorMessage')}")


# --- the global coordinator -------------------------------------------------


class Session:
    """A session at the global transaction coordinator."""

    def __init__(self, seed, transactional_id, clusters):
        self.seed, self.id, self.clusters = seed, transactional_id, clusters
        self.instance = uuid.uuid4()
        self.node = None
        self.epoch = self.sequence = -1

    def find(self):
        found = self.seed.ask("FindCoordinator 7", KeyType=3, CoordinatorKeys=[self.id])["Coordinators"][0]
        if found["ErrorCode"] in (COORDINATOR_NOT_AVAILABLE, COORDINATOR_LOAD_IN_PROGRESS):
            return None
        check("FindCoordinator", found)
        return found

    def ask(self, api, retriable, **values):
        """Asks the coordinator of the id, whoever that is by now."""
        def attempt():
            if self.node is None:
                if (found := self.find()) is None:
                    return None
                self.node = Node("%s:%d" % (found["Host"], found["Port"]))
            try:
                answer = self.node.ask(api, **values)
            except OSError:
                self.node = None
                raise
            if answer["ErrorCode"] in (NOT_COORDINATOR, COORDINATOR_NOT_AVAILABLE):
                self.node = None
                return None
            return None if answer["ErrorCode"] in retriable else answer
        return until(api, attempt)

    def init(self):
        answer = self.ask("InitGlobalTxn", (COORDINATOR_LOAD_IN_PROGRESS, CONCURRENT_TRANSACTIONS, PARTICIPANT_NOT_AVAILABLE),
                          GlobalTransactionalId=self.id, TimeoutMs=600000, ClusterIds=[c.id for c in self.clusters], InstanceId=self.instance)
        if answer["ErrorCode"] == 0:
            self.epoch, self.sequence = answer["GlobalEpoch"], answer["Sequence"]
        return answer

    def ask_end(self, committed, participants, sequence):
        """The same question until it is decided."""
        deadline = time.monotonic() + PATIENCE
        while True:
            answer = self.ask("EndGlobalTxn", (COORDINATOR_LOAD_IN_PROGRESS, CONCURRENT_TRANSACTIONS), GlobalTransactionalId=self.id,
                              GlobalEpoch=self.epoch, Sequence=sequence, Committed=committed, TimeoutMs=10000, Participants=participants)
            pending = any(p["State"] == 0 for p in answer["Participants"])
            if answer["ErrorCode"] != 0 or answer["Outcome"] != 0 and not pending:
                return answer
            if time.monotonic() > deadline:
                raise Failed(f"EndGlobalTxn {sequence}: not ended in {PATIENCE} s")

    def end(self, committed, clusters):
        """Ends the next transaction and returns what repeats of the question need."""
        sequence, participants = self.sequence, [c.participant() for c in clusters]
        answer = self.ask_end(committed, participants, sequence)
        if answer["ErrorCode"] == 0:
            self.sequence += 1
            self.go_on(clusters, {p["ClusterId"]: p for p in answer["Participants"]})
        return answer, sequence, participants

    def go_on(self, clusters, ended):
        """Takes the producers to the next transaction (C-CLI-5)."""
        again = [c for c in clusters if ended[c.id]["ProducerId"] == -1]
        if again:
            # Whoever has the id by now may have a transaction open.
            check("InitGlobalTxn", self.init())
        for c in clusters:
            if c in again:
                c.init_producer()
            else:
                c.go_on_with(ended[c.id]["ProducerId"], ended[c.id]["ProducerEpoch"])


# --- what is shown -----------------------------------------------------------------


def tell(step, **what):
    print(json.dumps({"step": step} | what), flush=True)


def told(answer):
    return {k: v for k, v in answer.items() if k != "ThrottleTimeMs"}


def discovery(gtc, transactional_id):
    answer = gtc.ask("ApiVersions", ClientSoftwareName="gtc-sockets", ClientSoftwareVersion="1")
    ranges = {str(k["ApiKey"]): [k["MinVersion"], k["MaxVersion"]] for k in answer["ApiKeys"] if k["ApiKey"] >= 1000 or k["ApiKey"] == 10}
    tell("versions", ranges=ranges)
    for version in ("6", "7"):
        def found(v=version):
            answer = gtc.ask("FindCoordinator " + v, KeyType=3, CoordinatorKeys=[transactional_id])["Coordinators"][0]
            return None if answer["ErrorCode"] in (COORDINATOR_NOT_AVAILABLE, COORDINATOR_LOAD_IN_PROGRESS) else answer
        tell("find " + version, **until("FindCoordinator", found))


def transactions(session, clusters):
    for c in clusters:
        c.produce("committed 1", "committed 2")
    answer, sequence, participants = session.end(True, clusters)
    tell("commit", sequence=sequence, participants=participants, **told(answer))
    tell("commit again", **told(session.ask_end(True, participants, sequence)))
    tell("commit again as abort", **told(session.ask_end(False, participants, sequence)))

    for c in clusters:
        c.produce("aborted")
    answer, old, participants = session.end(False, clusters)
    tell("abort", sequence=old, participants=participants, **told(answer))
    tell("abort again as commit", **told(session.ask_end(True, participants, old)))
    tell("too old", **told(session.ask_end(True, participants, sequence)))

    for c in clusters:
        c.produce("aborted by the client")
        c.abort()

    clusters[0].produce("one participant")
    answer, sequence, participants = session.end(True, clusters[:1])
    tell("one participant", sequence=sequence, participants=participants, **told(answer))


def administration(session):
    def settled():
        # Ongoing as long as the last look at a cluster is one that saw there what the client has aborted since (C-ADM-1).
        answer = session.node.ask("DescribeGlobalTransactions", GlobalTransactionalIds=[session.id, session.id + "-unknown"])
        return None if answer["GlobalTransactions"][0]["State"] == "Ongoing" else answer
    tell("describe", **told(until("DescribeGlobalTransactions", settled)))

    def listed():
        # A look that began before the describe may end after it.
        answer = session.node.ask("ListGlobalTransactions", StateFilters=["CompleteCommit", "Nonsense"], DurationFilterMs=-1,
                                  PatternFilter=session.id, HeuristicOnly=False)
        return answer if answer["GlobalTransactions"] else None
    tell("list", **told(until("ListGlobalTransactions", listed)))
    answer = session.ask("ResolveGlobalTransaction", (COORDINATOR_LOAD_IN_PROGRESS,), GlobalTransactionalId=session.id, Action=FORGET, ClusterId=None)
    tell("nothing to forget", **told(answer))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--gtc", required=True)
    parser.add_argument("--cluster", action="append", required=True)
    parser.add_argument("--topic", required=True)
    parser.add_argument("--id", required=True)
    args = parser.parse_args()

    clusters = [Cluster(name, address, args.topic, args.id) for name, _, address in (c.partition("=") for c in args.cluster)]
    for c in clusters:
        tell("cluster", name=c.name, id=c.id, transaction_version=c.transaction_version)
    gtc = Node(args.gtc)
    discovery(gtc, args.id)

    session = Session(gtc, args.id, clusters)
    tell("init", **told(session.init()))
    tell("init again", **told(session.init()))
    for c in clusters:
        c.init_producer()
    transactions(session, clusters)
    administration(session)

    second = Session(gtc, args.id, clusters)
    tell("second session", **told(second.init()))
    tell("first session again", **told(session.init()))
    for c in clusters:
        c.init_producer()
        c.produce("second session")
    fenced, _, participants = session.end(True, clusters)
    tell("fenced", **told(fenced))
    tell("second session commits", **told(second.end(True, clusters)[0]))

    for c in clusters:
        tell("read", name=c.name, values=c.read_committed())


if __name__ == "__main__":
    try:
        main()
    except Failed as e:
        sys.exit(f"gtc_sockets: {e}")
