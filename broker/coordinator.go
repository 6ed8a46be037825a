package broker

import (
	"context"
	"errors"
	"net"
	"strconv"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/kafka-gtc/kafka-gtc/wire"
)

// Coordinator is the role "gtc" as the front sees it.
type Coordinator interface {
	// Handle answers one request of the coordinator's own API keys. It is
	// called from many goroutines, for as long as the coordinator likes, but
	// returns soon after ctx ends: then the client is gone or the node stops.
	// The principal is Kafka's, such as User:alice, and host the IP address
	// that it is connected from; what they may do is the coordinator's to say.
	Handle(ctx context.Context, principal, host string, req kmsg.Request) kmsg.Response

	// FindCoordinator gives a principal the node that coordinates an id. An error that is
	// or wraps one of kerr's or wire's goes to the client by its code; any
	// other becomes COORDINATOR_NOT_AVAILABLE.
	FindCoordinator(principal, from, globalTransactionalID string) (nodeID int32, host string, port int32, err error)
}

// Node is one node of a group of coordinators.
type Node struct {
	ID   int32
	Host string
	Port int32
}

// Addr is the node's host:port.
func (n Node) Addr() string { return net.JoinHostPort(n.Host, strconv.Itoa(int(n.Port))) }

// NodeLister is what a Coordinator of several nodes offers besides: the nodes
// that the metadata of a node without the broker role shall list. A client
// sends requests only to nodes that the metadata names.
type NodeLister interface {
	Nodes() []Node
}

// findCoordinators answers FindCoordinator for global transactional ids.
func findCoordinators(c Coordinator, who caller, req *wire.FindCoordinatorRequest) kmsg.Response {
	resp := req.ResponseKind().(*wire.FindCoordinatorResponse)
	for _, id := range req.CoordinatorKeys {
		found := wire.NewFindCoordinatorResponseCoordinator()
		found.Key, found.NodeID, found.Port = id, -1, -1
		if id == "" {
			found.ErrorCode = kerr.InvalidRequest.Code
			found.ErrorMessage = kmsg.StringPtr("a global transactional id is not empty")
		} else if node, host, port, err := c.FindCoordinator(who.principal, who.host, id); err != nil {
			found.ErrorCode = errorCode(err)
			found.ErrorMessage = kmsg.StringPtr(err.Error())
		} else {
			found.NodeID, found.Host, found.Port = node, host, port
		}
		resp.Coordinators = append(resp.Coordinators, found)
	}
	return resp
}

func errorCode(err error) int16 {
	if e, ok := errors.AsType[*kerr.Error](err); ok {
		return e.Code
	}
	if e, ok := errors.AsType[*wire.Error](err); ok {
		return e.Code
	}
	return kerr.CoordinatorNotAvailable.Code
}
