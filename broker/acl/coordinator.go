package acl

import (
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/kafka-gtc/kafka-gtc/gtc/service"
)

// Coordinator authorises the coordinator's requests by the ACLs of a cache.
type Coordinator struct{ *Cache }

var _ service.Authorizer = Coordinator{}

// Allows implements service.Authorizer; the table is in KIP.md, Security.
func (c Coordinator) Allows(who service.Caller, right service.Right, id string) bool {
	may := func(op kmsg.ACLOperation, t kmsg.ACLResourceType, name string) bool {
		return c.Cache.Allows(Request{Principal: who.Principal, Host: who.Host, Operation: op, Type: t, Name: name})
	}
	switch right {
	case service.RightDescribe:
		return may(kmsg.ACLOperationDescribe, kmsg.ACLResourceTypeTransactionalId, id)
	case service.RightUse:
		return may(kmsg.ACLOperationWrite, kmsg.ACLResourceTypeTransactionalId, id)
	case service.RightOpen:
		return may(kmsg.ACLOperationWrite, kmsg.ACLResourceTypeTransactionalId, id) &&
			may(TwoPhaseCommit, kmsg.ACLResourceTypeTransactionalId, id)
	case service.RightResolve:
		return may(kmsg.ACLOperationAlter, kmsg.ACLResourceTypeCluster, ClusterName)
	}
	return false
}
