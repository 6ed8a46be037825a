package broker

import (
	"context"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/kafka-gtc/kafka-gtc/wire"
)

// plan is what happens to one request.
type plan struct {
	// handle answers it here, on a goroutine of its own; nil: kfake does. A nil
	// response closes the connection.
	handle func(ctx context.Context, who caller) kmsg.Response
	// before goes to kfake first; the answers are dropped.
	before []kmsg.Request
	// sent is the request as kfake sees it; nil: as it came. Its bytes are raw.
	sent kmsg.Request
	raw  []byte
	// edit makes the client's answer of kfake's; nil: the bytes go as they are.
	edit func(kmsg.Response) kmsg.Response
	// waits is the member whose request kfake answers only when other members
	// have sent theirs; nil: any other request.
	waits *member
	// ends is the member whose SyncGroup, if one waits, the request puts an end
	// to; nil: none's.
	ends *member
	// silent requests have no answer (Produce with acks=0).
	silent bool
}

// handledBy is the plan of an answer that is made here for whoever asks.
func handledBy(handle func(context.Context) kmsg.Response) plan {
	return plan{handle: func(ctx context.Context, _ caller) kmsg.Response { return handle(ctx) }}
}

// answerWith is the plan of an answer that is known already.
func answerWith(resp kmsg.Response) plan {
	return plan{handle: func(context.Context, caller) kmsg.Response { return resp }}
}

// editAs is an edit of answers of one type, which kmsg gives for the request.
func editAs[T kmsg.Response](edit func(T) kmsg.Response) func(kmsg.Response) kmsg.Response {
	return func(resp kmsg.Response) kmsg.Response { return edit(resp.(T)) }
}

// route decides what happens to a request that the api table allows.
func (f *Front) route(req *request) plan {
	switch body := req.body.(type) {
	case nil:
		return answerWith(f.unsupportedAPIVersions())
	case *kmsg.ApiVersionsRequest:
		return f.routeAPIVersions(body)
	case *kmsg.FindCoordinatorRequest:
		return f.routeOldFindCoordinator(body)
	case *wire.FindCoordinatorRequest:
		return f.routeFindCoordinator(req, body)
	case *kmsg.InitProducerIDRequest:
		return f.routeInitProducerID(req, body)
	case *wire.InitProducerIDRequestV6:
		return f.routeInitProducerIDV6(req, body)
	case *kmsg.ProduceRequest:
		return f.routeProduce(body)
	case *kmsg.EndTxnRequest:
		return f.routeEndTxn(req, body)
	case *kmsg.AddPartitionsToTxnRequest, *kmsg.AddOffsetsToTxnRequest:
		return f.routeTransaction(body)
	case *kmsg.TxnOffsetCommitRequest:
		return f.routeTxnOffsetCommit(body)
	case *kmsg.JoinGroupRequest:
		return f.routeJoinGroup(req, body)
	case *kmsg.SyncGroupRequest:
		return routeSyncGroup(body)
	case *kmsg.LeaveGroupRequest:
		return routeLeaveGroup(body)
	case *kmsg.FetchRequest:
		return f.routeFetch(req, body)
	case *kmsg.MetadataRequest:
		return f.routeMetadata(body)
	case *kmsg.CreateTopicsRequest:
		return f.routeCreateTopics(req, body)
	case *kmsg.CreatePartitionsRequest:
		return f.routeCreatePartitions(body)
	case *kmsg.DeleteRecordsRequest:
		return f.routeDeleteRecords(body)
	case *kmsg.DeleteGroupsRequest:
		return f.routeDeleteGroups(body)
	case *kmsg.DescribeTransactionsRequest:
		return plan{edit: editAs(showOffsets)}
	case *kmsg.DescribeConfigsRequest:
		return plan{edit: editAs(f.showConfigs(body))}
	case *kmsg.AlterConfigsRequest:
		return f.routeAlterConfigs(req, body)
	case *kmsg.IncrementalAlterConfigsRequest:
		return f.routeIncrementalAlterConfigs(req, body)
	default:
		if coordinatorKey(req.key) {
			return plan{handle: func(ctx context.Context, who caller) kmsg.Response {
				return f.opts.Coordinator.Handle(ctx, who.principal, who.host, body)
			}}
		}
	}
	return plan{}
}

// coordinatorKey says that an API key is the coordinator's own and not one of
// Kafka's with a newer version.
func coordinatorKey(key int16) bool {
	return key != wire.KeyFindCoordinator && key != wire.KeyInitProducerID && kmsg.RequestForKey(key) == nil
}

// table is every API key and version that this node serves.
func (f *Front) table(ctx context.Context) (apiTable, error) {
	t := apiTable{
		apiVersionsKey:               {0, 4},
		int16(kmsg.SASLHandshake):    {1, 1},
		int16(kmsg.SASLAuthenticate): {0, 2},
		int16(kmsg.Metadata):         {0, kmsg.NewPtrMetadataRequest().MaxVersion()},
	}
	if f.opts.Embedded != nil {
		var err error
		if t, err = f.opts.Embedded.apiVersions(ctx); err != nil {
			return nil, err
		}
	}
	if f.opts.Coordinator != nil {
		for _, api := range wire.APIs() {
			if coordinatorKey(api.Key) {
				t[api.Key] = versionRange{api.MinVersion, api.MaxVersion}
			}
		}
		t[wire.KeyFindCoordinator] = versionRange{t[wire.KeyFindCoordinator].min, wire.FindCoordinatorVersion}
	}
	if r, ok := t[wire.KeyInitProducerID]; ok && f.opts.Config.UnstableAPIVersions {
		// Kafka's rule: an unstable version is offered only when all are.
		t[wire.KeyInitProducerID] = versionRange{r.min, wire.InitProducerIDVersion}
	}
	return t, nil
}

// routeOldFindCoordinator is FindCoordinator up to version 6, which kfake
// answers when there is one. It refuses key type 3 by itself: those versions
// do not have it.
func (f *Front) routeOldFindCoordinator(body *kmsg.FindCoordinatorRequest) plan {
	if f.opts.Embedded != nil {
		return plan{}
	}
	resp := body.ResponseKind().(*kmsg.FindCoordinatorResponse)
	resp.ErrorCode = kerr.InvalidRequest.Code
	for _, key := range body.CoordinatorKeys {
		c := kmsg.NewFindCoordinatorResponseCoordinator()
		c.Key, c.ErrorCode = key, kerr.InvalidRequest.Code
		resp.Coordinators = append(resp.Coordinators, c)
	}
	return answerWith(resp)
}

// routeFindCoordinator is version 7, whose layout is version 6's.
func (f *Front) routeFindCoordinator(req *request, body *wire.FindCoordinatorRequest) plan {
	switch {
	case body.CoordinatorType == wire.CoordinatorTypeGlobalTransaction:
		return plan{handle: func(_ context.Context, who caller) kmsg.Response {
			return findCoordinators(f.opts.Coordinator, who, body)
		}}
	case f.opts.Embedded != nil:
		return plan{raw: req.withVersion(wire.FindCoordinatorVersion - 1)}
	}
	resp := body.ResponseKind().(*wire.FindCoordinatorResponse)
	for _, key := range body.CoordinatorKeys {
		c := wire.NewFindCoordinatorResponseCoordinator()
		c.Key, c.NodeID, c.Port, c.ErrorCode = key, -1, -1, kerr.InvalidRequest.Code
		c.ErrorMessage = kmsg.StringPtr("this node coordinates global transactions only")
		resp.Coordinators = append(resp.Coordinators, c)
	}
	return answerWith(resp)
}
