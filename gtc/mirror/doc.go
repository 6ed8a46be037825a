// Package mirror copies topics from one Kafka cluster to another exactly once:
// the records on the target and the mirror's position on the source are
// committed by one global transaction, and so are the offsets of application
// groups that are moved along.
//
//	m, err := mirror.New(mirror.Options{…})
//	…
//	err = m.Run(ctx) // until ctx ends, or something needs a person
//
// Keys, values, headers, timestamps and partitions stay as they are; one header
// is added (ProvenanceHeader). Topics are created with the source's number of
// partitions and settings, and grow with it. Readers of the target need
// isolation.level=read_committed.
//
// # Exactly once
//
// The position is that of an ordinary consumer group on the source
// (Flow.GroupID), committed with the member id and generation of the group's
// member: what a paused instance still tries to commit after its partitions
// went to another is refused, and the other does not learn the position before
// the transaction of the first is decided. Beside that, an instance that is
// given a partition reads on the target how far it was mirrored, so that even a
// lost position (a group that expired) does not mirror anything twice.
//
// # Both directions
//
// With the default policy a topic that came from the target is known by its
// name and not mirrored. With the identity policy both clusters write to one
// topic, and each record's header says where it came from: it is not sent back,
// nor to a cluster to which its origin has a flow of its own.
//
// # Group offsets
//
// An offset of the source (the next to read) becomes the target's offset of the
// first mirrored record at or above it, or the position after the last. With
// the default policy that is exact. With the identity policy in both directions
// the logs hold the records in different orders, and the offset is the highest
// below which the group has read everything: nothing is lost, and records that
// were already read may come again.
//
// An offset beyond what is mirrored is moved as far as the mirror is, and the
// rest when the mirror is there. Only groups without members on the target are
// written, and never backwards.
package mirror
