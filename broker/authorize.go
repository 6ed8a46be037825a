package broker

import (
	"context"
	"slices"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/kafka-gtc/kafka-gtc/broker/acl"
	"github.com/kafka-gtc/kafka-gtc/wire"
)

// admit says what happens to a request of this client. With an error the
// connection ends, after the answer if there is a plan for one.
func (c *conn) admit(req *request) (*plan, error) {
	resp, err := c.authenticate(req)
	if resp != nil {
		p := answerWith(resp)
		return &p, err
	}
	if err != nil {
		return nil, err
	}
	p, refused := c.f.refuse(req, c)
	if !refused {
		p = c.f.route(req)
	}
	if !c.login.open() { // ApiVersions only
		p = c.f.early(req.body, p)
	}
	if namesNodes(req) {
		p = c.f.readdress(c.listener, p)
	}
	return &p, nil
}

// refuse answers what kfake's authorizer does not decide as Kafka's does, or not
// before this front has answered.
func (f *Front) refuse(req *request, c *conn) (plan, bool) {
	if !c.trusted {
		if p, denied := f.denyInternal(req); denied {
			return p, true
		}
	}
	if f.opts.ACLs != nil && !c.trusted {
		if denied := f.denyTransaction(req, c.who); denied != nil {
			return answerWith(denied), true
		}
	}
	switch body := req.body.(type) {
	case *kmsg.DescribeTransactionsRequest:
		if f.opts.ACLs != nil && !c.trusted {
			who := c.who
			return plan{edit: editAs(func(resp *kmsg.DescribeTransactionsResponse) kmsg.Response {
				return f.showVisibleOffsets(who, resp)
			})}, true
		}
	case *kmsg.DescribeACLsRequest:
		return f.routeDescribeACLs(req, body)
	case *kmsg.CreateACLsRequest:
		return f.routeCreateACLs(req, body)
	case *kmsg.DeleteACLsRequest:
		return f.routeDeleteACLs(req, body)
	case *kmsg.AlterUserSCRAMCredentialsRequest:
		return routeAlterScram(req, body)
	}
	return plan{}, false
}

// denyTransaction refuses what a principal may not do with a transactional id
// before the front looks at whose producer it is: that, too, would tell who
// uses the id. Nil: it may, or kfake is asked.
func (f *Front) denyTransaction(req *request, who caller) kmsg.Response {
	may := func(op kmsg.ACLOperation, id string) bool {
		return f.opts.ACLs.Allows(acl.Request{
			Principal: who.principal, Host: who.host, Operation: op, Type: kmsg.ACLResourceTypeTransactionalId, Name: id,
		})
	}
	denied := kerr.TransactionalIDAuthorizationFailed
	switch body := req.body.(type) {
	case *wire.InitProducerIDRequestV6:
		// KIP-939: without TWO_PHASE_COMMIT no transaction without timeout.
		if named(body.TransactionalID) && (!may(kmsg.ACLOperationWrite, *body.TransactionalID) ||
			body.Enable2PC && !may(acl.TwoPhaseCommit, *body.TransactionalID)) {
			return refusedV6(denied)
		}
	case *kmsg.InitProducerIDRequest:
		if named(body.TransactionalID) && !may(kmsg.ACLOperationWrite, *body.TransactionalID) {
			resp := body.ResponseKind().(*kmsg.InitProducerIDResponse)
			resp.ErrorCode, resp.ProducerID, resp.ProducerEpoch = denied.Code, -1, -1
			return resp
		}
	case *kmsg.ProduceRequest:
		// Without acks there is nothing to answer, and kfake refuses it.
		if named(body.TransactionID) && body.Acks != 0 && !may(kmsg.ACLOperationWrite, *body.TransactionID) {
			return refuseTransaction(body, denied)
		}
	case *kmsg.AddPartitionsToTxnRequest, *kmsg.AddOffsetsToTxnRequest, *kmsg.TxnOffsetCommitRequest, *kmsg.EndTxnRequest:
		if id, _, ok := producerOf(body); ok && !may(kmsg.ACLOperationWrite, id) {
			return refuseTransaction(body, denied)
		}
	}
	return nil
}

// showVisibleOffsets is showOffsets where there is access control: a
// transaction without partitions may be one whose partitions kfake hides from
// the caller, so the node itself looks as well.
func (f *Front) showVisibleOffsets(who caller, resp *kmsg.DescribeTransactionsResponse) kmsg.Response {
	empty := func(s kmsg.DescribeTransactionsResponseTransactionState) bool {
		return s.ErrorCode == 0 && s.State == "Ongoing" && len(s.Topics) == 0
	}
	mayLook := f.opts.ACLs.Allows(acl.Request{
		Principal: who.principal, Host: who.host, Operation: kmsg.ACLOperationDescribe,
		Type: kmsg.ACLResourceTypeTopic, Name: offsetsTopic,
	})
	if !mayLook || !slices.ContainsFunc(resp.TransactionStates, empty) {
		return resp
	}
	all := kmsg.NewPtrDescribeTransactionsRequest()
	for _, s := range resp.TransactionStates {
		all.TransactionalIDs = append(all.TransactionalIDs, s.TransactionalID)
	}
	answer, err := f.opts.Embedded.ask(f.ctx, all)
	if err != nil {
		return resp
	}
	for i, s := range answer.(*kmsg.DescribeTransactionsResponse).TransactionStates {
		if i < len(resp.TransactionStates) && empty(s) && empty(resp.TransactionStates[i]) {
			addOffsetsTopic(&resp.TransactionStates[i])
		}
	}
	return resp
}

// kfake knows no operation beyond IDEMPOTENT_WRITE, which means something on
// the cluster only. So TWO_PHASE_COMMIT of a transactional id is kept in it
// under that name. An ACL of IDEMPOTENT_WRITE on a transactional id, which
// Kafka would keep and never use, is refused.
const keptAs = kmsg.ACLOperationIdempotentWrite

const noAuthorizer = "No Authorizer is configured."

func (f *Front) routeDescribeACLs(req *request, body *kmsg.DescribeACLsRequest) (plan, bool) {
	if f.opts.ACLs == nil {
		resp := body.ResponseKind().(*kmsg.DescribeACLsResponse)
		resp.ErrorCode, resp.ErrorMessage = kerr.SecurityDisabled.Code, kmsg.StringPtr(noAuthorizer)
		return answerWith(resp), true
	}
	asked := body.Operation
	if body.Operation == acl.TwoPhaseCommit {
		body.Operation = keptAs
	}
	return plan{
		sent: body,
		raw:  req.withBody(body),
		edit: editAs(func(resp *kmsg.DescribeACLsResponse) kmsg.Response {
			showTwoPhaseCommit(resp)
			for i := range resp.Resources {
				r := &resp.Resources[i]
				r.ACLs = slices.DeleteFunc(r.ACLs, func(a kmsg.DescribeACLsResponseResourceACL) bool {
					return asked != kmsg.ACLOperationAny && a.Operation != asked
				})
			}
			resp.Resources = slices.DeleteFunc(resp.Resources, func(r kmsg.DescribeACLsResponseResource) bool { return len(r.ACLs) == 0 })
			return resp
		}),
	}, true
}

func showTwoPhaseCommit(resp *kmsg.DescribeACLsResponse) {
	for i := range resp.Resources {
		for j := range resp.Resources[i].ACLs {
			if a := &resp.Resources[i].ACLs[j]; resp.Resources[i].ResourceType == kmsg.ACLResourceTypeTransactionalId && a.Operation == keptAs {
				a.Operation = acl.TwoPhaseCommit
			}
		}
	}
}

// ACLs asks kfake in the node's own name; it is an acl.Source.
func (e *Embedded) ACLs(ctx context.Context, req kmsg.Request) (kmsg.Response, error) {
	resp, err := e.ask(ctx, req)
	if described, ok := resp.(*kmsg.DescribeACLsResponse); ok {
		showTwoPhaseCommit(described)
	}
	return resp, err
}

func (f *Front) routeCreateACLs(req *request, body *kmsg.CreateACLsRequest) (plan, bool) {
	refusals := make([]*kmsg.CreateACLsResponseResult, len(body.Creations))
	kept := body.Creations[:0:0]
	for i, a := range body.Creations {
		onID := a.ResourceType == kmsg.ACLResourceTypeTransactionalId
		refuse := func(err *kerr.Error, message string) {
			r := kmsg.NewCreateACLsResponseResult()
			r.ErrorCode, r.ErrorMessage = err.Code, &message
			refusals[i] = &r
		}
		switch {
		case f.opts.ACLs == nil:
			refuse(kerr.SecurityDisabled, noAuthorizer)
		case a.ResourceName == "":
			refuse(kerr.InvalidRequest, "Resource name should not be empty")
		case onID && a.Operation == keptAs:
			refuse(kerr.InvalidRequest, "IDEMPOTENT_WRITE means nothing on a transactional id")
		default:
			if onID && a.Operation == acl.TwoPhaseCommit {
				a.Operation = keptAs
			}
			kept = append(kept, a)
		}
	}
	body.Creations = kept
	return plan{
		sent: body,
		raw:  req.withBody(body),
		edit: editAs(func(resp *kmsg.CreateACLsResponse) kmsg.Response {
			f.refreshACLs()
			answered := resp.Results
			resp.Results = nil
			for _, refusal := range refusals {
				if refusal != nil {
					resp.Results = append(resp.Results, *refusal)
				} else if len(answered) > 0 {
					resp.Results, answered = append(resp.Results, answered[0]), answered[1:]
				}
			}
			return resp
		}),
	}, true
}

func (f *Front) routeDeleteACLs(req *request, body *kmsg.DeleteACLsRequest) (plan, bool) {
	if f.opts.ACLs == nil {
		resp := body.ResponseKind().(*kmsg.DeleteACLsResponse)
		for range body.Filters {
			r := kmsg.NewDeleteACLsResponseResult()
			r.ErrorCode, r.ErrorMessage = kerr.SecurityDisabled.Code, kmsg.StringPtr(noAuthorizer)
			resp.Results = append(resp.Results, r)
		}
		return answerWith(resp), true
	}
	for i := range body.Filters {
		d := &body.Filters[i]
		onID := d.ResourceType == kmsg.ACLResourceTypeTransactionalId
		switch {
		case d.Operation == acl.TwoPhaseCommit && (onID || d.ResourceType == kmsg.ACLResourceTypeAny):
			d.Operation, d.ResourceType = keptAs, kmsg.ACLResourceTypeTransactionalId
		case d.Operation == keptAs && d.ResourceType == kmsg.ACLResourceTypeAny:
			d.ResourceType = kmsg.ACLResourceTypeCluster // where alone it means something
		case d.Operation == keptAs && onID:
			d.Operation = acl.TwoPhaseCommit // which kfake has none of
		}
	}
	return plan{
		sent: body,
		raw:  req.withBody(body),
		edit: editAs(func(resp *kmsg.DeleteACLsResponse) kmsg.Response {
			f.refreshACLs()
			for i := range resp.Results {
				for j := range resp.Results[i].MatchingACLs {
					if a := &resp.Results[i].MatchingACLs[j]; a.ResourceType == kmsg.ACLResourceTypeTransactionalId && a.Operation == keptAs {
						a.Operation = acl.TwoPhaseCommit
					}
				}
			}
			return resp
		}),
	}, true
}

// refreshACLs lets a change take effect before it is answered.
func (f *Front) refreshACLs() {
	if f.opts.ACLs != nil {
		f.opts.ACLs.Refresh(f.ctx)
	}
}

// routeAlterScram refuses credentials with which nobody could log in, because
// kfake tells every client the same number of iterations.
func routeAlterScram(req *request, body *kmsg.AlterUserSCRAMCredentialsRequest) (plan, bool) {
	var refused []kmsg.AlterUserSCRAMCredentialsResponseResult
	body.Upsertions = slices.DeleteFunc(body.Upsertions, func(u kmsg.AlterUserSCRAMCredentialsRequestUpsertion) bool {
		if u.Iterations == scramIterations {
			return false
		}
		r := kmsg.NewAlterUserSCRAMCredentialsResponseResult()
		r.User, r.ErrorCode = u.Name, kerr.UnacceptableCredential.Code
		r.ErrorMessage = kmsg.StringPtr("the embedded broker takes 4096 iterations only")
		refused = append(refused, r)
		return true
	})
	if refused == nil {
		return plan{}, false
	}
	return plan{
		sent: body,
		raw:  req.withBody(body),
		edit: editAs(func(resp *kmsg.AlterUserSCRAMCredentialsResponse) kmsg.Response {
			resp.Results = append(resp.Results, refused...)
			return resp
		}),
	}, true
}
