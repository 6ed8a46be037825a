package broker

import (
	"context"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/kafka-gtc/kafka-gtc/wire"
)

// policy is what this node does with the requests of one API key before kfake
// or the coordinator sees them. A request passes the columns in their order.
type policy struct {
	// asks is what Kafka asks the authorizer about such a request, and what a
	// client without rights is refused by. kfake asks it, but for those with
	// denied; the coordinator asks it of its own requests (package service).
	asks rights
	// denied asks the authorizer here, because this node answers something
	// before kfake does; nil: kfake asks in time.
	denied func(*Front, *request, caller) kmsg.Response
	// guard refuses what is the node's own, or what kfake would do wrong (see
	// refusal); nil: such a request changes nothing of the node's.
	guard func(*Front, kmsg.Request) refusal
	// route decides what becomes of the rest; nil: kfake answers it as it came.
	route func(*Front, *conn, *request) plan

	// keeps says that the answer promises that something is kept. Such an
	// answer leaves when all that was written until then is on the disk.
	keeps bool
	// journal says that kfake learns from the request what it keeps in memory
	// alone of transactions, so that package durable writes it down.
	journal bool
}

// rights is what Kafka's authorizer is asked about a request.
type rights struct {
	on []kmsg.ACLResourceType // a refusal has the code of one of these
	// hides: what the client may not see is left out instead of refused.
	hides bool
	// free: everybody may, and sees nothing that is anybody's.
	free bool
}

var (
	everybody = rights{free: true}
	unseen    = rights{hides: true}
)

func on(types ...kmsg.ACLResourceType) rights { return rights{on: types} }

const (
	topic   = kmsg.ACLResourceTypeTopic
	group   = kmsg.ACLResourceTypeGroup
	cluster = kmsg.ACLResourceTypeCluster
	txnID   = kmsg.ACLResourceTypeTransactionalId
)

// policies has one row for each API key. A key without a row is not served: what
// the next kfake serves has to be thought about first.
//
// The map is filled by init because the functions that it names read it.
var policies map[int16]policy

func init() {
	policies = make(map[int16]policy)
	for _, rows := range []map[kmsg.Key]policy{policiesOfData(), policiesOfGroups(), policiesOfTheCluster()} {
		for key, row := range rows {
			policies[int16(key)] = row
		}
	}
	for _, api := range wire.APIs() {
		if coordinatorKey(api.Key) {
			policies[api.Key] = policy{asks: on(txnID, cluster), route: toCoordinator}
		}
	}
}

func policiesOfData() map[kmsg.Key]policy {
	return map[kmsg.Key]policy{
		// Of connections.
		kmsg.ApiVersions:      {asks: everybody, route: plain((*Front).routeAPIVersions)},
		kmsg.SASLHandshake:    {asks: everybody},
		kmsg.SASLAuthenticate: {asks: everybody},
		kmsg.Metadata:         {asks: unseen, route: plain((*Front).routeMetadata)},
		kmsg.FindCoordinator:  {asks: on(group, txnID, cluster), route: (*Front).routeFindCoordinator},
		kmsg.DescribeCluster:  {asks: everybody},

		// Records.
		kmsg.Produce: {asks: on(topic, txnID), keeps: true, denied: (*Front).denyTransaction, guard: guards((*Front).guardProduce), route: (*Front).routeProduce},
		kmsg.Fetch:   {asks: on(topic), route: (*Front).routeFetch},

		kmsg.ListOffsets:             {asks: on(topic)},
		kmsg.OffsetForLeaderEpoch:    {asks: on(topic)},
		kmsg.DescribeProducers:       {asks: on(topic)},
		kmsg.DescribeTopicPartitions: {asks: on(topic)},
		kmsg.DeleteRecords:           {asks: on(topic), keeps: true, guard: guards((*Front).guardDeleteRecords), route: plain((*Front).routeDeleteRecords)},
		kmsg.WriteTxnMarkers:         {asks: on(cluster), keeps: true, guard: guards((*Front).guardMarkers)},

		// Transactions. A partition is part of one once it has been written to,
		// so AddPartitionsToTxn promises nothing.
		kmsg.InitProducerID:       {asks: on(txnID, cluster), keeps: true, journal: true, denied: (*Front).denyTransaction, guard: (*Front).guardInit, route: (*Front).routeInitProducerID},
		kmsg.AddPartitionsToTxn:   {asks: on(txnID, topic, cluster), journal: true, denied: (*Front).denyTransaction, guard: guards((*Front).guardAddPartitions), route: transactional},
		kmsg.AddOffsetsToTxn:      {asks: on(txnID, group), keeps: true, journal: true, denied: (*Front).denyTransaction, guard: (*Front).guardProducer, route: transactional},
		kmsg.TxnOffsetCommit:      {asks: on(txnID, group, topic), keeps: true, journal: true, denied: (*Front).denyTransaction, guard: guards((*Front).guardTxnOffsetCommit), route: plain((*Front).routeTxnOffsetCommit)},
		kmsg.EndTxn:               {asks: on(txnID), keeps: true, journal: true, denied: (*Front).denyTransaction, guard: (*Front).guardProducer, route: (*Front).routeEndTxn},
		kmsg.DescribeTransactions: {asks: on(txnID), route: (*Front).routeDescribeTransactions},
		kmsg.ListTransactions:     {asks: unseen, route: (*Front).routeListTransactions},
	}
}

func policiesOfGroups() map[kmsg.Key]policy {
	return map[kmsg.Key]policy{
		// Members ask again when they are not known any more; what is
		// kept of them is that of static ones.
		kmsg.OffsetCommit:           {asks: on(group, topic), keeps: true, guard: guards((*Front).guardOffsetCommit)},
		kmsg.OffsetFetch:            {asks: on(group), denied: (*Front).denyOffsetFetch},
		kmsg.OffsetDelete:           {asks: on(group), keeps: true, guard: guards((*Front).guardOffsetDelete)},
		kmsg.JoinGroup:              {asks: on(group), keeps: true, guard: guards(guardJoinGroup), route: (*Front).routeJoinGroup},
		kmsg.SyncGroup:              {asks: on(group), route: plain((*Front).routeSyncGroup)},
		kmsg.Heartbeat:              {asks: on(group)},
		kmsg.LeaveGroup:             {asks: on(group), keeps: true, route: plain((*Front).routeLeaveGroup)},
		kmsg.ConsumerGroupHeartbeat: {asks: on(group), keeps: true, route: (*Front).routeConsumerGroupHeartbeat},
		kmsg.ConsumerGroupDescribe:  {asks: on(group)},
		kmsg.ListGroups:             {asks: unseen},
		kmsg.DescribeGroups:         {asks: on(group)},
		kmsg.DeleteGroups:           {asks: on(group), keeps: true, route: plain((*Front).routeDeleteGroups)},

		kmsg.ShareGroupHeartbeat:       {asks: on(group)},
		kmsg.ShareGroupDescribe:        {asks: on(group)},
		kmsg.ShareFetch:                {asks: on(group)},
		kmsg.ShareAcknowledge:          {asks: on(group), keeps: true},
		kmsg.DescribeShareGroupOffsets: {asks: on(group)},
		kmsg.AlterShareGroupOffsets:    {asks: on(group), keeps: true},
		kmsg.DeleteShareGroupOffsets:   {asks: on(group), keeps: true},
	}
}

func policiesOfTheCluster() map[kmsg.Key]policy {
	return map[kmsg.Key]policy{
		kmsg.CreateTopics:               {asks: on(topic, cluster), keeps: true, guard: guards((*Front).guardCreateTopics)},
		kmsg.DeleteTopics:               {asks: on(topic), keeps: true, guard: guards((*Front).guardDeleteTopics), route: plain((*Front).routeDeleteTopics)},
		kmsg.CreatePartitions:           {asks: on(topic), keeps: true, guard: guards((*Front).guardCreatePartitions)},
		kmsg.DescribeConfigs:            {asks: on(topic, cluster), route: plain((*Front).routeDescribeConfigs)},
		kmsg.AlterConfigs:               {asks: on(topic, cluster), keeps: true, guard: guards((*Front).guardAlterConfigs), route: (*Front).routeAlterConfigs},
		kmsg.IncrementalAlterConfigs:    {asks: on(topic, cluster), keeps: true, guard: guards((*Front).guardIncrementalAlterConfigs)},
		kmsg.ListConfigResources:        {asks: on(cluster)},
		kmsg.UpdateFeatures:             {asks: on(cluster), keeps: true},
		kmsg.AlterPartitionAssignments:  {asks: on(cluster), keeps: true},
		kmsg.ListPartitionReassignments: {asks: on(cluster)},
		kmsg.AlterReplicaLogDirs:        {asks: on(cluster), keeps: true},
		kmsg.DescribeLogDirs:            {asks: on(cluster)},
		kmsg.ElectLeaders:               {asks: on(cluster), keeps: true, denied: (*Front).denyElection},
		kmsg.DescribeClientQuotas:       {asks: on(cluster)},
		kmsg.AlterClientQuotas:          {asks: on(cluster), keeps: true, guard: guards(guardQuotas)},
		kmsg.GetTelemetrySubscriptions:  {asks: everybody},
		kmsg.PushTelemetry:              {asks: everybody},

		// Rights and users.
		kmsg.DescribeACLs:                 {asks: on(cluster), route: (*Front).routeDescribeACLs},
		kmsg.CreateACLs:                   {asks: on(cluster), keeps: true, guard: guards((*Front).guardCreateACLs), route: (*Front).routeCreateACLs},
		kmsg.DeleteACLs:                   {asks: on(cluster), keeps: true, route: (*Front).routeDeleteACLs},
		kmsg.DescribeUserSCRAMCredentials: {asks: on(cluster)},
		kmsg.AlterUserSCRAMCredentials:    {asks: on(cluster), keeps: true, guard: guards(guardAlterScram)},
	}
}

// coordinatorKey says that an API key is the coordinator's own and not one of
// Kafka's with a newer version.
func coordinatorKey(key int16) bool {
	return key != wire.KeyFindCoordinator && key != wire.KeyInitProducerID && kmsg.RequestForKey(key) == nil
}

// promised says that the answer to a request promises that something is kept.
func promised(key int16) bool { return policies[key].keeps }

// stored says, before kfake's answer to a request leaves, that what it promises
// is on the disk.
func (e *Embedded) stored(key int16) error {
	if promised(key) {
		return e.storage.settled()
	}
	return e.storage.err()
}

// journals says that the journal sees requests of this key.
func (f *Front) journals(key int16) bool { return f.opts.Journal != nil && policies[key].journal }

// plain is a route that needs the body alone.
func plain[B kmsg.Request](route func(*Front, B) plan) func(*Front, *conn, *request) plan {
	return func(f *Front, _ *conn, req *request) plan { return route(f, req.body.(B)) }
}

// guards is a guard of requests of one type.
func guards[B kmsg.Request](guard func(*Front, B) refusal) func(*Front, kmsg.Request) refusal {
	return func(f *Front, body kmsg.Request) refusal { return guard(f, body.(B)) }
}

// decide says what happens to a request that the api table allows.
func (f *Front) decide(c *conn, req *request) plan {
	if req.body == nil {
		return answerWith(f.unsupportedAPIVersions())
	}
	row := policies[req.key]
	if row.denied != nil && f.opts.ACLs != nil && !c.trusted {
		if resp := row.denied(f, req, c.who); resp != nil {
			return answerWith(resp)
		}
	}
	var refused refusal
	if row.guard != nil && f.opts.Embedded != nil && !c.trusted {
		refused = row.guard(f, req.body)
	}
	if refused.whole != nil {
		return *refused.whole
	}
	p := plan{}
	if row.route != nil {
		p = row.route(f, c, req)
	}
	if refused.merge == nil {
		return p
	}
	return p.merged(req, refused.merge)
}

// refusal is what a guard says of a request.
type refusal struct {
	whole *plan // nothing of it goes on
	// merge puts the answers to what the guard has taken out of the request
	// into the answer to the rest; nil: nothing was taken out.
	merge func(kmsg.Response)
}

// and is two refusals of parts.
func (r refusal) and(o refusal) refusal {
	switch {
	case r.merge == nil:
		return o
	case o.merge == nil:
		return r
	}
	return refusal{merge: func(resp kmsg.Response) {
		r.merge(resp)
		o.merge(resp)
	}}
}

// ofAll answers a request of which nothing is left.
func (r refusal) ofAll(req kmsg.Request, left int) refusal {
	if r.merge == nil || left > 0 {
		return r
	}
	resp := req.ResponseKind()
	r.merge(resp)
	return refuseWhole(resp)
}

func refuseWhole(resp kmsg.Response) refusal {
	p := answerWith(resp)
	return refusal{whole: &p}
}

// once finds what comes again in a request. kfake writes and forces what it keeps
// for each element by itself, in the loop that serves everybody: with one element
// 10,000 times in a request all others wait for as many fsyncs.
type once[K comparable] map[K]bool

func (o once[K]) again(k K) bool {
	was := o[k]
	o[k] = true
	return was
}

// takeOut takes the elements that are refused out of a request. Their answers
// come to their places in the response.
func takeOut[E, A any, R kmsg.Response](elements *[]E, refuse func(E) (A, bool), answers func(R) *[]A) refusal {
	refused := make(map[int]A)
	var kept []E
	for i, e := range *elements {
		if a, no := refuse(e); no {
			refused[i] = a
		} else {
			kept = append(kept, e)
		}
	}
	if len(refused) == 0 {
		return refusal{}
	}
	all := len(*elements)
	*elements = kept
	return refusal{merge: func(resp kmsg.Response) {
		list := answers(resp.(R))
		given := *list
		out := make([]A, 0, all)
		for i := range all {
			if a, no := refused[i]; no {
				out = append(out, a)
			} else if len(given) > 0 {
				out, given = append(out, given[0]), given[1:]
			}
		}
		*list = append(out, given...)
	}}
}

// merged is the plan of what a guard has left of a request.
func (p plan) merged(req *request, merge func(kmsg.Response)) plan {
	if handle := p.handle; handle != nil {
		return plan{handle: func(ctx context.Context, who caller) kmsg.Response {
			resp := handle(ctx, who)
			if resp != nil {
				merge(resp)
			}
			return resp
		}}
	}
	if p.sent == nil {
		p.sent, p.raw = req.body, req.withBody(req.body)
	}
	edit := p.edit
	p.edit = func(resp kmsg.Response) kmsg.Response {
		if edit != nil {
			resp = edit(resp)
		}
		if resp != nil {
			merge(resp)
		}
		return resp
	}
	return p
}

// toCoordinator is the plan of the coordinator's own requests.
func toCoordinator(f *Front, _ *conn, req *request) plan {
	return plan{handle: func(ctx context.Context, who caller) kmsg.Response {
		return f.opts.Coordinator.Handle(ctx, who.principal, who.host, req.body)
	}}
}
