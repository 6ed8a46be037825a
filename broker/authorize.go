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
	p := c.f.decide(c, req)
	if !c.login.open() { // ApiVersions only
		p = c.f.early(req.body, p)
	}
	if namesNodes(req) {
		p = c.f.readdress(c.listener, p)
	}
	return &p, nil
}

// denyTransaction refuses what a principal may not do with a transactional id
// before the front looks at whose producer it is: that, too, would tell who
// uses the id. Nil: it may, or kfake is asked.
func (f *Front) denyTransaction(req *request, who caller) kmsg.Response {
	may := func(op kmsg.ACLOperation, id string) bool { return f.may(who, op, txnID, id) }
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

// may says that a principal has a right.
func (f *Front) may(who caller, op kmsg.ACLOperation, on kmsg.ACLResourceType, name string) bool {
	return f.opts.ACLs.Allows(acl.Request{Principal: who.principal, Host: who.host, Operation: op, Type: on, Name: name})
}

// denyOffsetFetch answers for versions that have no code for the whole: kfake
// leaves the refusal out, and the client would take it for a group without
// offsets and begin anew.
func (f *Front) denyOffsetFetch(req *request, who caller) kmsg.Response {
	body := req.body.(*kmsg.OffsetFetchRequest)
	if body.Version >= 2 || f.may(who, kmsg.ACLOperationDescribe, group, body.Group) {
		return nil
	}
	resp := body.ResponseKind().(*kmsg.OffsetFetchResponse)
	for _, t := range body.Topics {
		out := kmsg.NewOffsetFetchResponseTopic()
		out.Topic = t.Topic
		for _, partition := range t.Partitions {
			p := kmsg.NewOffsetFetchResponseTopicPartition()
			p.Partition, p.Offset, p.ErrorCode = partition, -1, kerr.GroupAuthorizationFailed.Code
			out.Partitions = append(out.Partitions, p)
		}
		resp.Topics = append(resp.Topics, out)
	}
	return resp
}

// denyElection does the same for version 0 of ElectLeaders.
func (f *Front) denyElection(req *request, who caller) kmsg.Response {
	body := req.body.(*kmsg.ElectLeadersRequest)
	if body.Version >= 1 || f.may(who, kmsg.ACLOperationAlter, cluster, acl.ClusterName) {
		return nil
	}
	resp := body.ResponseKind().(*kmsg.ElectLeadersResponse)
	for _, t := range body.Topics {
		out := kmsg.NewElectLeadersResponseTopic()
		out.Topic = t.Topic
		for _, partition := range t.Partitions {
			p := kmsg.NewElectLeadersResponseTopicPartition()
			p.Partition, p.ErrorCode = partition, kerr.ClusterAuthorizationFailed.Code
			out.Partitions = append(out.Partitions, p)
		}
		resp.Topics = append(resp.Topics, out)
	}
	return resp
}

func (f *Front) routeDescribeTransactions(c *conn, _ *request) plan {
	if f.opts.ACLs == nil || c.trusted {
		return plan{edit: editAs(showOffsets)}
	}
	who := c.who
	return plan{edit: editAs(func(resp *kmsg.DescribeTransactionsResponse) kmsg.Response {
		return f.showVisibleOffsets(who, resp)
	})}
}

// showVisibleOffsets is showOffsets where there is access control: a
// transaction without partitions may be one whose partitions kfake hides from
// the caller, so the node itself looks as well.
func (f *Front) showVisibleOffsets(who caller, resp *kmsg.DescribeTransactionsResponse) kmsg.Response {
	empty := func(s kmsg.DescribeTransactionsResponseTransactionState) bool {
		return s.ErrorCode == 0 && s.State == "Ongoing" && len(s.Topics) == 0
	}
	if !f.may(who, kmsg.ACLOperationDescribe, topic, offsetsTopic) || !slices.ContainsFunc(resp.TransactionStates, empty) {
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

func (f *Front) routeDescribeACLs(_ *conn, req *request) plan {
	body := req.body.(*kmsg.DescribeACLsRequest)
	if f.opts.ACLs == nil {
		resp := body.ResponseKind().(*kmsg.DescribeACLsResponse)
		resp.ErrorCode, resp.ErrorMessage = kerr.SecurityDisabled.Code, kmsg.StringPtr(noAuthorizer)
		return answerWith(resp)
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
	}
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

func (f *Front) guardCreateACLs(body *kmsg.CreateACLsRequest) refusal {
	return takeOut(&body.Creations, func(a kmsg.CreateACLsRequestCreation) (kmsg.CreateACLsResponseResult, bool) {
		r, message := kmsg.NewCreateACLsResponseResult(), ""
		switch {
		case f.opts.ACLs == nil:
			r.ErrorCode, message = kerr.SecurityDisabled.Code, noAuthorizer
		case a.ResourceName == "":
			r.ErrorCode, message = kerr.InvalidRequest.Code, "Resource name should not be empty"
		case a.ResourceType == kmsg.ACLResourceTypeTransactionalId && a.Operation == keptAs:
			r.ErrorCode, message = kerr.InvalidRequest.Code, "IDEMPOTENT_WRITE means nothing on a transactional id"
		default:
			return r, false
		}
		r.ErrorMessage = &message
		return r, true
	}, func(r *kmsg.CreateACLsResponse) *[]kmsg.CreateACLsResponseResult { return &r.Results })
}

func (f *Front) routeCreateACLs(_ *conn, req *request) plan {
	body := req.body.(*kmsg.CreateACLsRequest)
	for i := range body.Creations {
		if a := &body.Creations[i]; a.ResourceType == kmsg.ACLResourceTypeTransactionalId && a.Operation == acl.TwoPhaseCommit {
			a.Operation = keptAs
		}
	}
	return plan{
		sent: body,
		raw:  req.withBody(body),
		edit: editAs(func(resp *kmsg.CreateACLsResponse) kmsg.Response {
			if err := f.refreshACLs(); err != nil {
				for i := range resp.Results {
					resp.Results[i].ErrorCode, resp.Results[i].ErrorMessage = kerr.RequestTimedOut.Code, notInForce(err)
				}
			}
			return resp
		}),
	}
}

func (f *Front) routeDeleteACLs(_ *conn, req *request) plan {
	body := req.body.(*kmsg.DeleteACLsRequest)
	if f.opts.ACLs == nil {
		resp := body.ResponseKind().(*kmsg.DeleteACLsResponse)
		for range body.Filters {
			r := kmsg.NewDeleteACLsResponseResult()
			r.ErrorCode, r.ErrorMessage = kerr.SecurityDisabled.Code, kmsg.StringPtr(noAuthorizer)
			resp.Results = append(resp.Results, r)
		}
		return answerWith(resp)
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
			err := f.refreshACLs()
			for i := range resp.Results {
				if err != nil {
					resp.Results[i].ErrorCode, resp.Results[i].ErrorMessage = kerr.RequestTimedOut.Code, notInForce(err)
				}
				for j := range resp.Results[i].MatchingACLs {
					if a := &resp.Results[i].MatchingACLs[j]; a.ResourceType == kmsg.ACLResourceTypeTransactionalId && a.Operation == keptAs {
						a.Operation = acl.TwoPhaseCommit
					}
				}
			}
			return resp
		}),
	}
}

// refreshACLs lets a change take effect before it is answered.
func (f *Front) refreshACLs() error {
	if f.opts.ACLs == nil {
		return nil
	}
	return f.opts.ACLs.Refresh(f.ctx)
}

// notInForce is what a change is answered that kfake has made and this node
// could not read yet. The client does not take it for done, and asks again.
func notInForce(err error) *string {
	return kmsg.StringPtr("the change is made, and not yet in force: " + err.Error())
}

// guardAlterScram refuses credentials with which nobody could log in, because
// kfake tells every client the same number of iterations.
func guardAlterScram(_ *Front, body *kmsg.AlterUserSCRAMCredentialsRequest) refusal {
	return takeOut(&body.Upsertions, func(u kmsg.AlterUserSCRAMCredentialsRequestUpsertion) (kmsg.AlterUserSCRAMCredentialsResponseResult, bool) {
		r := kmsg.NewAlterUserSCRAMCredentialsResponseResult()
		r.User, r.ErrorCode = u.Name, kerr.UnacceptableCredential.Code
		r.ErrorMessage = kmsg.StringPtr("the embedded broker takes 4096 iterations only")
		return r, u.Iterations != scramIterations
	}, func(r *kmsg.AlterUserSCRAMCredentialsResponse) *[]kmsg.AlterUserSCRAMCredentialsResponseResult {
		return &r.Results
	})
}
