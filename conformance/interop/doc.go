// Package interop holds the coordinator to clients that know nothing of it.
//
// Producers: Apache Kafka's own client takes part in global transactions over
// two clusters, with KIP-939's setting and nothing of ours but the request that
// ends the transaction.
//
// Consumers: five implementations of isolation.level=read_committed (Apache
// Kafka's client, librdkafka, aiokafka, kafka-go's protocol layer under package
// readback, franz-go) have to see the same, which is the outcome and no more.
//
// The protocol itself: two more implementations of a client, written from KIP.md
// and sharing nothing with package wire. One is Python's sockets
// (python/gtc_sockets.py), the other the struct tags of kafka-go's protocol
// package (TestKafkaGo). Whatever such a client has to guess is a gap
// in KIP.md.
//
// TestKafkaGo starts mini-brokers only. The other tests need real clusters, Java,
// Maven and Python (build tag kafka). Their clusters are an Apache Kafka and a
// mini-broker; every client reaches both through a link, which can keep back the
// end of transactions.
package interop
