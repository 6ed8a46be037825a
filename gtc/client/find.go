package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strconv"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/kafka-gtc/kafka-gtc/wire"
)

// find asks the configured nodes who coordinates the ids: address by id. All are
// asked at once and the first answer counts: of one that accepts connections
// and does not answer, nobody waits for the timeout.
func (c *coordinator) find(ctx context.Context, ids ...string) (map[string]string, error) {
	ctx, cancel := context.WithTimeout(ctx, c.askTimeout)
	defer cancel()
	type answer struct {
		nodes map[string]string
		err   error
	}
	seeds := c.bootstrap.SeedBrokers()
	answers := make(chan answer, len(seeds))
	for _, node := range seeds {
		go func() {
			nodes, err := findAt(ctx, node, ids)
			answers <- answer{nodes, err}
		}()
	}
	var errs []error
	for range seeds {
		a := <-answers
		if a.err == nil {
			return a.nodes, nil
		}
		errs = append(errs, a.err)
	}
	return nil, c.notFound(errs)
}

// notFound is the most telling of what the nodes said. One that may know better
// later is worth asking again, whatever the others say for good; of the rest,
// one that serves global transactions says more.
func (c *coordinator) notFound(errs []error) error {
	for _, telling := range []func(error) bool{
		again,
		func(err error) bool { return !errors.Is(err, errNoRole) },
	} {
		if i := slices.IndexFunc(errs, telling); i >= 0 {
			return errs[i]
		}
	}
	return &NoCoordinatorError{Addresses: c.addresses}
}

func findAt(ctx context.Context, node *kgo.Broker, ids []string) (map[string]string, error) {
	if err := servesGlobalTransactions(ctx, node); err != nil {
		return nil, err
	}
	req := wire.NewPtrFindCoordinatorRequest()
	req.CoordinatorType = wire.CoordinatorTypeGlobalTransaction
	req.CoordinatorKeys = ids
	resp, err := req.RequestWith(ctx, node)
	if err != nil {
		if errors.Is(err, io.EOF) {
			// ApiVersions is answered before a login, what comes next is not.
			err = fmt.Errorf("the node closed the connection, as it does when a login (SASL) is missing: %w", err)
		}
		return nil, fmt.Errorf("find the coordinator of %q: %w", ids[0], err)
	}
	nodes := map[string]string{}
	for _, found := range resp.Coordinators {
		if err := answerError(found.ErrorCode, found.ErrorMessage); err != nil {
			return nil, err
		}
		nodes[found.Key] = net.JoinHostPort(found.Host, strconv.Itoa(int(found.Port)))
	}
	for _, id := range ids {
		if nodes[id] == "" {
			return nil, &coordinatorError{code: kerr.CoordinatorNotAvailable, message: fmt.Sprintf("the answer to FindCoordinator does not name %q", id)}
		}
	}
	return nodes, nil
}

// servesGlobalTransactions tells a node without the role from one that cannot
// be reached: kgo has no error of its own for a version that is not offered.
func servesGlobalTransactions(ctx context.Context, node *kgo.Broker) error {
	req := kmsg.NewPtrApiVersionsRequest()
	req.ClientSoftwareName, req.ClientSoftwareVersion = "kafka-gtc", "0"
	resp, err := req.RequestWith(ctx, node)
	if err != nil {
		return fmt.Errorf("reach the coordinator: %w", err)
	}
	for _, k := range resp.ApiKeys {
		if k.ApiKey == wire.KeyFindCoordinator && k.MaxVersion >= wire.FindCoordinatorVersion {
			return nil
		}
	}
	return errNoRole
}
