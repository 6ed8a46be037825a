package broker

import (
	"math"
	"slices"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// mends are changes to requests that kfake would fall over, made where it
// handles them. A fault's When is asked there, and these never say yes.
func mends() []kfake.Fault {
	return []kfake.Fault{{
		Keys: []kmsg.Key{kmsg.Produce}, TopLevel: true, Count: -1,
		When: func(req kmsg.Request) bool {
			nameTopics(req.(*kmsg.ProduceRequest))
			return false
		},
	}}
}

// nameTopics gives topics that come by id a name. kfake collects its answers by
// name and partition, and two topics that it does not know would share one:
// partition 0 of two deleted topics ended the process.
func nameTopics(req *kmsg.ProduceRequest) {
	for i := range req.Topics {
		if t := &req.Topics[i]; req.Version >= 13 {
			t.Topic = string(t.TopicID[:])
		}
	}
}

// maxJoin bounds what a group keeps of one member, and its leader's answer
// carries of each. It is room for 1,000 topics of a consumer with two assignors.
const maxJoin = 128 << 10

// guardJoinGroup refuses a member that brings more than a group has room for.
func guardJoinGroup(_ *Front, body *kmsg.JoinGroupRequest) refusal {
	size := len(body.ProtocolType)
	if body.InstanceID != nil {
		size += len(*body.InstanceID)
	}
	for _, p := range body.Protocols {
		size += len(p.Name) + len(p.Metadata)
	}
	if size <= maxJoin {
		return refusal{}
	}
	resp := body.ResponseKind().(*kmsg.JoinGroupResponse)
	resp.ErrorCode = kerr.GroupMaxSizeReached.Code
	return refuseWhole(resp)
}

// routeJoinGroup keeps protocols from kfake that it would fall over: it counts
// them by name, and ends the process when no name is counted once for each
// member. Kafka refuses an empty list, too.
func (f *Front) routeJoinGroup(_ *conn, req *request) plan {
	body := req.body.(*kmsg.JoinGroupRequest)
	if len(body.Protocols) == 0 {
		resp := body.ResponseKind().(*kmsg.JoinGroupResponse)
		resp.ErrorCode = kerr.InconsistentGroupProtocol.Code
		return answerWith(resp)
	}
	names := make(map[string]bool, len(body.Protocols))
	once := slices.DeleteFunc(slices.Clone(body.Protocols), func(p kmsg.JoinGroupRequestProtocol) bool {
		twice := names[p.Name]
		names[p.Name] = true
		return twice
	})
	m := memberOf(body.Group, body.MemberID, body.InstanceID)
	mended := len(once) < len(body.Protocols)
	if body.Version >= 4 && body.MemberID == "" && body.InstanceID == nil {
		// It is told an id, and joins by that. kfake keeps the first request
		// for the whole session timeout, which is up to half an hour.
		for i := range once {
			mended = mended || len(once[i].Metadata) > 0
			once[i].Metadata = nil
		}
	}
	if !mended {
		return plan{waits: m, ends: m}
	}
	body.Protocols = once
	return plan{waits: m, ends: m, sent: body, raw: req.withBody(body)}
}

// guardQuotas refuses numbers that kfake could not write: its file of quotas is
// JSON, which has no infinity, and a node that cannot write ends. A quota is the
// only number of a client that is kept and no integer.
func guardQuotas(_ *Front, body *kmsg.AlterClientQuotasRequest) refusal {
	return takeOut(&body.Entries, func(e kmsg.AlterClientQuotasRequestEntry) (kmsg.AlterClientQuotasResponseEntry, bool) {
		r := kmsg.NewAlterClientQuotasResponseEntry()
		for _, entity := range e.Entity {
			r.Entity = append(r.Entity, kmsg.AlterClientQuotasResponseEntryEntity{Type: entity.Type, Name: entity.Name})
		}
		no := slices.ContainsFunc(e.Ops, func(o kmsg.AlterClientQuotasRequestEntryOp) bool {
			return !o.Remove && (math.IsNaN(o.Value) || math.IsInf(o.Value, 0))
		})
		r.ErrorCode, r.ErrorMessage = kerr.InvalidRequest.Code, kmsg.StringPtr("a quota is a finite number")
		return r, no
	}, func(r *kmsg.AlterClientQuotasResponse) *[]kmsg.AlterClientQuotasResponseEntry { return &r.Entries })
}
