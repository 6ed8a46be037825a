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
	for key := range t {
		if _, ok := policies[key]; !ok {
			delete(t, key)
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

// routeFindCoordinator lets kfake answer when there is one. Versions up to 6 do
// not have key type 3, and kfake refuses it by itself; version 7 has version 6's
// layout.
func (f *Front) routeFindCoordinator(_ *conn, req *request) plan {
	switch body := req.body.(type) {
	case *wire.FindCoordinatorRequest:
		if body.CoordinatorType == wire.CoordinatorTypeGlobalTransaction {
			return plan{handle: func(_ context.Context, who caller) kmsg.Response {
				return findCoordinators(f.opts.Coordinator, who, body)
			}}
		}
		if f.opts.Embedded != nil {
			return plan{raw: req.withVersion(wire.FindCoordinatorVersion - 1)}
		}
		return answerWith(refuseCoordinators(body))
	case *kmsg.FindCoordinatorRequest:
		if f.opts.Embedded == nil {
			return answerWith(refuseOldCoordinators(body))
		}
	}
	return plan{}
}

func refuseOldCoordinators(body *kmsg.FindCoordinatorRequest) kmsg.Response {
	resp := body.ResponseKind().(*kmsg.FindCoordinatorResponse)
	resp.ErrorCode = kerr.InvalidRequest.Code
	for _, key := range body.CoordinatorKeys {
		c := kmsg.NewFindCoordinatorResponseCoordinator()
		c.Key, c.ErrorCode = key, kerr.InvalidRequest.Code
		resp.Coordinators = append(resp.Coordinators, c)
	}
	return resp
}

func refuseCoordinators(body *wire.FindCoordinatorRequest) kmsg.Response {
	resp := body.ResponseKind().(*wire.FindCoordinatorResponse)
	for _, key := range body.CoordinatorKeys {
		c := wire.NewFindCoordinatorResponseCoordinator()
		c.Key, c.NodeID, c.Port, c.ErrorCode = key, -1, -1, kerr.InvalidRequest.Code
		c.ErrorMessage = kmsg.StringPtr("this node coordinates global transactions only")
		resp.Coordinators = append(resp.Coordinators, c)
	}
	return resp
}
