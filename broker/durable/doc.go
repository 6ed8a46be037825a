// Package durable makes the transactions of the embedded kfake survive a
// crash. A participant must keep a prepared transaction open for as long as
// the coordinator needs, and kfake does so only over a clean Close: after
// anything else it aborts every open transaction and moves its producer's
// epoch on, so that a decided commit finds nothing to commit.
//
// Two parts. [Repair] runs before kfake.NewCluster. It reads what kfake wrote
// while it ran (segments, pids.log, groups.log), works out what Close would
// have left, and writes that: a snapshot for each partition, the open
// transactions, the producers, the sequence windows. kfake then loads by the
// path of a clean start. [Journal] remembers what kfake keeps in memory alone
// until a transaction ends: the group offsets staged in it, and which end was
// asked for, so that a transaction that was part way through its end when the
// process died is finished the way it began.
//
// What a restart leaves, by where the crash fell:
//
//   - records acknowledged, end not asked for: open, same producer id and
//     epoch, last stable offset held back, staged group offsets kept, retried
//     batches recognised as duplicates;
//   - between the markers of an EndTxn: the rest of the markers is written, the
//     offsets are applied, the epoch moves on (version 5 and up); a repeat of
//     the request gets the answer that it would have got;
//   - markers written, producer log behind: as above;
//   - markers of an InitProducerId that aborts what it finds: as above.
//
// All of that holds for a loss of power too, which leaves of what was not forced
// any part, in any file, as long as no answer leaves before the data directory
// has been synced; the front sees to that. Two things kfake keeps in memory that
// its answers promise, and the front has them written down: where the log begins
// after a DeleteRecords ([SaveStarts]), and the second pair of a kept
// transaction ([SaveKept]).
//
// Not kept: a partition that was added to a transaction and never written to
// (kfake's Close does not keep it either).
//
// # Use by the broker front
//
// The front owns one data directory and calls, in this order:
//
//	report, err := durable.Repair(dir, clock.Now(), logger) // refuses damage, but of clients' partitions
//	journal, err := durable.OpenJournal(dir, clock.Now)
//	cluster, err := kfake.NewCluster(kfake.DataDir(dir), kfake.SyncWrites(), ...)
//
// The partitions in report.Offline are to be kept from everybody: kfake takes them
// for new, because their files are set aside (see [Offline]).
//
// Then, for every request that parsed, on whatever goroutine carries it:
//
//	if err := journal.Request(req); err != nil { ... }        // before kfake sees it
//	resp := ...                                               // kfake's answer
//	if err := journal.Response(req, resp); err != nil { ... } // before the client sees it
//
// Both look at InitProducerId, AddPartitionsToTxn, AddOffsetsToTxn,
// TxnOffsetCommit and EndTxn and return at once for every other key. Requests must carry their version.
// An error means that the disk failed and that nothing more can be promised:
// do not forward, do not answer, stop the broker. Response is called with a
// nil answer when kfake's connection broke, and nothing is concluded from it.
// At the end: cluster.Close(), then journal.Close(). One process at a time may
// use the directory.
package durable
