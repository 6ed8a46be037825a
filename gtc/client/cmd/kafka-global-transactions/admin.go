package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strconv"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/kafka-gtc/kafka-gtc/wire"
	"github.com/kafka-gtc/kafka-gtc/wire/plain"
)

// retryPause is the pause before a question is asked again.
const retryPause = 100 * time.Millisecond

// admin sends the operator's RPCs.
type admin struct {
	addrs     []string
	bootstrap *kgo.Client            // to addrs
	nodes     map[string]*kgo.Client // by address
	access    []kgo.Opt              // how to log in
	out       printer
}

func dial(access []kgo.Opt, addrs ...string) (*kgo.Client, error) {
	return kgo.NewClient(append([]kgo.Opt{
		kgo.SeedBrokers(addrs...), kgo.MaxVersions(wire.Versions()), kgo.ClientID("kafka-global-transactions"),
	}, access...)...)
}

func newAdmin(addrs []string, access []kgo.Opt, out printer) (*admin, error) {
	cl, err := dial(access, addrs...)
	if err != nil {
		return nil, err
	}
	return &admin{addrs: addrs, bootstrap: cl, nodes: map[string]*kgo.Client{}, access: access, out: out}, nil
}

func (a *admin) close() {
	a.bootstrap.Close()
	for _, cl := range a.nodes {
		cl.Close()
	}
}

// errNoRole is a broker's that is no coordinator: kgo has no error of its own
// for a request that is not offered.
var errNoRole = errors.New("it does not serve global transactions; name a node whose process.roles has gtc")

// ask sends a request to any bootstrap address that answers and has the role.
func (a *admin) ask(ctx context.Context, req kmsg.Request) (kmsg.Response, error) {
	var errs []error
	for i, b := range a.bootstrap.SeedBrokers() {
		err := hasRole(ctx, b)
		if err == nil {
			var resp kmsg.Response
			if resp, err = b.Request(ctx, req); err == nil {
				return resp, nil
			}
			if errors.Is(err, io.EOF) {
				// ApiVersions is answered before a login, what comes next is not.
				err = fmt.Errorf("the node closed the connection, as it does when a login (SASL, by --command-config) is missing: %w", err)
			}
		}
		errs = append(errs, fmt.Errorf("%s: %w", a.addrs[i], err))
	}
	return nil, errors.Join(errs...)
}

// hasRole is nil, errNoRole, or says why the node cannot be asked.
func hasRole(ctx context.Context, node *kgo.Broker) error {
	req := kmsg.NewPtrApiVersionsRequest()
	req.ClientSoftwareName, req.ClientSoftwareVersion = "kafka-gtc", "0"
	resp, err := req.RequestWith(ctx, node)
	if err != nil {
		return err
	}
	if !slices.ContainsFunc(resp.ApiKeys, func(k kmsg.ApiVersionsResponseApiKey) bool { return k.ApiKey == wire.KeyListGlobalTransactions }) {
		return errNoRole
	}
	return nil
}

// askNode sends a request to the node at an address.
func (a *admin) askNode(ctx context.Context, addr string, req kmsg.Request) (kmsg.Response, error) {
	cl := a.nodes[addr]
	if cl == nil {
		var err error
		if cl, err = dial(a.access, addr); err != nil {
			return nil, err
		}
		a.nodes[addr] = cl
	}
	resp, err := cl.SeedBrokers()[0].Request(ctx, req)
	if err != nil {
		return nil, fmt.Errorf("coordinator node %s: %w", addr, err)
	}
	return resp, nil
}

// coordinator finds the node of an id.
func (a *admin) coordinator(ctx context.Context, id string) (string, error) {
	req := wire.NewPtrFindCoordinatorRequest()
	req.CoordinatorType = wire.CoordinatorTypeGlobalTransaction
	req.CoordinatorKeys = []string{id}
	resp, err := a.ask(ctx, req)
	if err != nil {
		return "", err
	}
	found := resp.(*wire.FindCoordinatorResponse).Coordinators
	if len(found) != 1 {
		return "", fmt.Errorf("find the coordinator of %s: %d answers to one question", plain.Name(id), len(found))
	}
	if err := answered(found[0].ErrorCode, found[0].ErrorMessage); err != nil {
		return "", fmt.Errorf("find the coordinator of %s: %w", plain.Name(id), err)
	}
	return net.JoinHostPort(found[0].Host, strconv.Itoa(int(found[0].Port))), nil
}

// onCoordinator asks the coordinator of an id, again while it moves or loads.
// code says what the answer's error code is.
func (a *admin) onCoordinator(ctx context.Context, id string, req kmsg.Request, code func(kmsg.Response) int16) (kmsg.Response, error) {
	for {
		addr, err := a.coordinator(ctx, id)
		var resp kmsg.Response
		if err == nil {
			if resp, err = a.askNode(ctx, addr, req); err == nil {
				err = wire.ErrorForCode(code(resp))
			}
		}
		if !moving(err) {
			if resp == nil {
				return nil, err
			}
			return resp, nil // an error in it is the caller's
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("%w (%w)", err, ctx.Err())
		case <-time.After(retryPause):
		}
	}
}

// moving says that an answer passes when the coordinator has moved or loaded.
func moving(err error) bool {
	return errors.Is(err, kerr.NotCoordinator) || errors.Is(err, kerr.CoordinatorLoadInProgress) || errors.Is(err, kerr.CoordinatorNotAvailable)
}

// list asks every node, again while one loads or a partition has no owner: each
// knows its own ids only, and a node that does not answer makes the list
// incomplete, which must not look like "nothing there".
func (a *admin) list(ctx context.Context, req *wire.ListGlobalTransactionsRequest) error {
	for {
		all, err := a.listOnce(ctx, req)
		switch {
		case err == nil:
			return a.out.list(all)
		case !moving(err):
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w (%w)", err, ctx.Err())
		case <-time.After(retryPause):
		}
	}
}

func (a *admin) listOnce(ctx context.Context, req *wire.ListGlobalTransactionsRequest) ([]wire.ListGlobalTransactionsResponseGlobalTransaction, error) {
	meta, err := a.ask(ctx, kmsg.NewPtrMetadataRequest())
	if err != nil {
		return nil, err
	}
	var all []wire.ListGlobalTransactionsResponseGlobalTransaction
	for _, b := range meta.(*kmsg.MetadataResponse).Brokers {
		resp, err := a.askNode(ctx, net.JoinHostPort(b.Host, strconv.Itoa(int(b.Port))), req)
		if err != nil {
			return nil, err
		}
		r := resp.(*wire.ListGlobalTransactionsResponse)
		if err := answered(r.ErrorCode, r.ErrorMessage); err != nil {
			return nil, err
		}
		if len(r.UnknownStateFilters) > 0 {
			return nil, fmt.Errorf("unknown state %s", plain.Names(r.UnknownStateFilters))
		}
		all = append(all, r.GlobalTransactions...)
	}
	return all, nil
}

func (a *admin) describe(ctx context.Context, ids []string) error {
	var errs []error
	for _, id := range ids {
		one, err := a.described(ctx, id)
		if err == nil {
			err = a.out.describe(one)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", plain.Name(id), err))
		}
	}
	return errors.Join(errs...)
}

func (a *admin) described(ctx context.Context, id string) (described, error) {
	req := wire.NewPtrDescribeGlobalTransactionsRequest()
	req.GlobalTransactionalIDs = []string{id}
	only := func(r kmsg.Response) described {
		return r.(*wire.DescribeGlobalTransactionsResponse).GlobalTransactions[0]
	}
	resp, err := a.onCoordinator(ctx, id, req, func(r kmsg.Response) int16 { return only(r).ErrorCode })
	if err != nil {
		return described{}, err
	}
	one := only(resp)
	return one, answered(one.ErrorCode, one.ErrorMessage)
}

// resolve sends an operator's word; cluster is that of ResolveGiveUp, else nil.
func (a *admin) resolve(ctx context.Context, id string, action int8, cluster *string) error {
	req := wire.NewPtrResolveGlobalTransactionRequest()
	req.GlobalTransactionalID, req.Action, req.ClusterID = id, action, cluster
	resp, err := a.onCoordinator(ctx, id, req, func(r kmsg.Response) int16 {
		return r.(*wire.ResolveGlobalTransactionResponse).ErrorCode
	})
	if err != nil {
		return err
	}
	r := resp.(*wire.ResolveGlobalTransactionResponse)
	if err := answered(r.ErrorCode, r.ErrorMessage); err != nil {
		return fmt.Errorf("%s: %w", plain.Name(id), err)
	}
	return a.out.resolved(id, r.State)
}

func answered(code int16, message *string) error {
	err := wire.ErrorForCode(code)
	if err != nil && message != nil {
		return fmt.Errorf("%s: %w", plain.Text(*message), err)
	}
	return err
}
