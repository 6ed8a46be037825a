package broker

import "github.com/twmb/franz-go/pkg/kmsg"

// promises says of each request that kfake serves whether its answer promises
// that something is kept. Such an answer leaves when all that was written until
// then is on the disk. A request without a row is taken for one that promises.
var promises = map[kmsg.Key]bool{
	kmsg.Produce: true, kmsg.DeleteRecords: true, kmsg.WriteTxnMarkers: true,
	kmsg.CreateTopics: true, kmsg.DeleteTopics: true, kmsg.CreatePartitions: true,
	kmsg.AlterConfigs: true, kmsg.IncrementalAlterConfigs: true, kmsg.UpdateFeatures: true,
	kmsg.CreateACLs: true, kmsg.DeleteACLs: true, kmsg.AlterUserSCRAMCredentials: true, kmsg.AlterClientQuotas: true,
	kmsg.AlterPartitionAssignments: true, kmsg.AlterReplicaLogDirs: true, kmsg.ElectLeaders: true,
	kmsg.InitProducerID: true, kmsg.AddOffsetsToTxn: true, kmsg.TxnOffsetCommit: true, kmsg.EndTxn: true,
	kmsg.OffsetCommit: true, kmsg.OffsetDelete: true, kmsg.DeleteGroups: true,
	kmsg.AlterShareGroupOffsets: true, kmsg.DeleteShareGroupOffsets: true, kmsg.ShareAcknowledge: true,
	// What is kept of members is that of static ones.
	kmsg.JoinGroup: true, kmsg.LeaveGroup: true, kmsg.ConsumerGroupHeartbeat: true,

	// In memory alone: members ask again when they are not known any more, and
	// a partition is part of a transaction once it has been written to.
	kmsg.Heartbeat: false, kmsg.SyncGroup: false, kmsg.ShareGroupHeartbeat: false, kmsg.ShareFetch: false,
	kmsg.AddPartitionsToTxn: false, kmsg.PushTelemetry: false, kmsg.GetTelemetrySubscriptions: false,
	kmsg.SASLHandshake: false, kmsg.SASLAuthenticate: false,

	kmsg.ApiVersions: false, kmsg.Metadata: false, kmsg.FindCoordinator: false,
	kmsg.Fetch: false, kmsg.ListOffsets: false, kmsg.OffsetFetch: false, kmsg.OffsetForLeaderEpoch: false,
	kmsg.ListGroups: false, kmsg.DescribeGroups: false, kmsg.ConsumerGroupDescribe: false,
	kmsg.ShareGroupDescribe: false, kmsg.DescribeShareGroupOffsets: false,
	kmsg.DescribeACLs: false, kmsg.DescribeConfigs: false, kmsg.ListConfigResources: false,
	kmsg.DescribeClientQuotas: false, kmsg.DescribeUserSCRAMCredentials: false,
	kmsg.DescribeCluster: false, kmsg.DescribeLogDirs: false, kmsg.DescribeTopicPartitions: false,
	kmsg.ListPartitionReassignments: false, kmsg.DescribeProducers: false,
	kmsg.DescribeTransactions: false, kmsg.ListTransactions: false,
}

func promised(key int16) bool {
	kept, ok := promises[kmsg.Key(key)]
	return kept || !ok
}

// stored says, before kfake's answer to a request leaves, that what it promises
// is on the disk.
func (e *Embedded) stored(key int16) error {
	if promised(key) {
		return e.storage.settled()
	}
	return e.storage.err()
}

// journalled are the requests in which kfake learns what it keeps in memory of
// transactions.
var journalled = []kmsg.Key{kmsg.InitProducerID, kmsg.AddPartitionsToTxn, kmsg.AddOffsetsToTxn, kmsg.TxnOffsetCommit, kmsg.EndTxn}
