// Package client is the library for applications that write to two or more
// Kafka clusters in one transaction: either all of it becomes visible, or
// nothing does.
//
//	cl, err := client.Open(ctx, client.Options{
//		GlobalTransactionalID: "payments-7",
//		Coordinator:           []string{"gtc-1:9092", "gtc-2:9092"},
//		Clusters: map[string]client.Cluster{
//			"us": {ClientOpts: []kgo.Opt{kgo.SeedBrokers("us-1:9092")}},
//			"eu": {ClientOpts: []kgo.Opt{kgo.SeedBrokers("eu-1:9092")}},
//		},
//	})
//	…
//	txn, err := cl.Begin(ctx)
//	…
//	txn.Produce(ctx, "us", &kgo.Record{Topic: "debits", Value: debit}, nil)
//	txn.Produce(ctx, "eu", &kgo.Record{Topic: "credits", Value: credit}, nil)
//	result, err := txn.Commit(ctx)
//
// The clusters need no change but one setting, by which they let a transaction
// wait for its decision: transaction.max.timeout.ms=2147483647 (which Kafka 4.0
// and older take at its word: 24.8 days), or
// transaction.two.phase.commit.enable=true (KIP-939). The consumers need
// isolation.level=read_committed, as with every Kafka transaction, and nothing
// else.
//
// A consumer group's offsets become a part of the transaction by
// Txn.CommitOffsets; GroupSession does that for an application that consumes on
// one cluster and produces to any, in any number of instances. With
// Options.Ring transactions run on several ids in turn, and need not wait for
// the markers of the one before.
//
// # What an error says
//
// An error of Commit says what is known of the outcome, and that decides what
// the application may do:
//
//	nil                   committed, for good; Result.Pending where not yet ended
//	*AbortedError         nothing is visible: do the work again
//	*UnknownOutcomeError  not known: call Commit again, or Abort to learn which won
//	*HeuristicError       the clusters differ: somebody has to mend the data
//	*FencedError          another client has taken the id over
//
// There is no guess among them. After an *UnknownOutcomeError the transaction
// may be committed, and doing the work again would do it twice.
//
// # How it works
//
// Every cluster has a kgo producer under the same transactional id. Begin,
// Produce and CommitOffsets concern those clusters only, and so does Abort as
// long as commit was not asked for: nothing is decided, so the coordinator need
// not be told. Commit waits for
// every record, and then sends one request to the coordinator, which looks at
// each cluster itself, makes its decision durable and ends the transactions.
// From that request on only the coordinator ends them.
//
// kgo initialises its producer id, and ends its transactions, when it sees fit.
// The connections of the producers pass through a gate (kgo.Dialer) that holds
// it to the protocol: no InitProducerId before InitGlobalTxn has answered or in
// the middle of a transaction, and no EndTxn at all. kgo's EndTxn is answered
// from the coordinator's reply, with the producer id and epoch to go on with,
// which saves the round trip as well. A producer that had no part in a
// transaction, because that was of group offsets alone, is replaced by one that
// has not asked for its producer id yet, and whose request for it is answered
// here. The same gate turns InitProducerId v5 into v6 with Enable2Pc where a
// cluster offers it. A cluster that keeps prepared transactions (KIP-939) is asked
// for the producer id over another connection, which aborts nothing, and kgo is
// answered from that. What names its producer id itself, offsets and the end of
// an aborted transaction, goes over a client of its own.
package client
