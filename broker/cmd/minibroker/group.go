package main

import (
	"context"
	"fmt"
	"net"
	"strconv"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"

	"github.com/kafka-gtc/kafka-gtc/broker"
	"github.com/kafka-gtc/kafka-gtc/broker/config"
	"github.com/kafka-gtc/kafka-gtc/gtc/assign"
	"github.com/kafka-gtc/kafka-gtc/gtc/client/cmd/program"
	"github.com/kafka-gtc/kafka-gtc/gtc/participant"
	"github.com/kafka-gtc/kafka-gtc/gtc/service"
)

// newGroup is the group of nodes over a home cluster; nil when the log is on
// the embedded broker, which has one node.
func newGroup(opts broker.Options) (*assign.Group, error) {
	if opts.Config.Home == nil {
		return nil, nil //nolint:nilnil // no group is an answer
	}
	home, err := clientOpts(*opts.Config.Home)
	if err != nil {
		return nil, err
	}
	return assign.New(assign.Options{
		ClientOpts: home, Node: service.Node(opts.Node), Logger: opts.Log,
		SessionTimeout: opts.Config.GlobalTransactions.SessionTimeout,
	})
}

// member is a coordinator that is one of several.
type member struct {
	*service.Service
	group *assign.Group
}

var _ broker.NodeLister = member{}

// Nodes implements broker.NodeLister.
func (m member) Nodes() []broker.Node {
	var nodes []broker.Node
	for _, n := range m.group.Nodes() {
		nodes = append(nodes, broker.Node(n))
	}
	return nodes
}

// reachable reads what the driver of the participants knows without asking: one
// answer for each configured cluster, from the start.
func reachable(participants *participant.Clusters) func() map[string]bool {
	return func() map[string]bool {
		up := make(map[string]bool)
		for _, c := range participants.Clusters() {
			name := c.ClusterID
			if _, twice := up[name]; twice || name == "" {
				name = c.Alias // it has never said who it is, or is one of two of that id
			}
			up[name] = c.Reachable
		}
		return up
	}
}

// serveMetrics offers metrics to Prometheus until the function that it returns
// is called.
func serveMetrics(ctx context.Context, at config.HostPort, metrics prometheus.Collector, log zerolog.Logger) (stop func() error, err error) {
	registry := prometheus.NewPedanticRegistry()
	if err = registry.Register(metrics); err != nil {
		return nil, fmt.Errorf("metrics: %w", err)
	}
	return program.ServeMetrics(ctx, net.JoinHostPort(at.Host, strconv.Itoa(int(at.Port))), registry, log)
}
