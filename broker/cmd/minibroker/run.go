package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"time"

	"github.com/rs/zerolog"

	"github.com/kafka-gtc/kafka-gtc/broker"
	"github.com/kafka-gtc/kafka-gtc/broker/config"
	"github.com/kafka-gtc/kafka-gtc/broker/durable"
)

// drainTimeout is how long, at the end, answers that are owed may take.
const drainTimeout = 10 * time.Second

// run is the life of a node: it puts the parts together, serves until ctx
// ends, and takes them apart in the opposite order.
func run(ctx context.Context, cfg *config.Config, f flags, log zerolog.Logger) (err error) {
	var closers closers
	defer func() { err = errors.Join(err, closers.close()) }()

	if cfg.LogDir != "" && cfg.Roles.Broker {
		release, err := broker.LockDir(cfg.LogDir)
		if err != nil {
			return err
		}
		closers.add(release)
	}
	ln, node, err := listen(ctx, cfg)
	if err != nil {
		return err
	}
	closers.add(func() error { return ignoreClosed(ln.Close()) })

	embedded, err := openEmbedded(cfg, node, log)
	if err != nil {
		return err
	}
	if embedded != nil {
		closers.add(func() error { embedded.Close(); return nil })
	}
	opts := broker.Options{Config: cfg, Node: node, Embedded: embedded, Now: time.Now, Log: log}
	if cfg.Roles.GTC {
		coordinator, stop, err := startCoordinator(ctx, opts, f.crashAt)
		if err != nil {
			return err
		}
		closers.add(stop)
		opts.Coordinator = coordinator
	}
	front, err := broker.NewFront(ctx, opts)
	if err != nil {
		return err
	}
	closers.add(func() error { return shutdown(front, log) })

	served := make(chan error, 1)
	go func() { served <- front.Serve(ln) }()
	if err := ready(cfg, node, embedded, ln, f.readyFile, log); err != nil {
		return err
	}
	select {
	case <-ctx.Done():
		log.Info().Msg("stopping")
		return nil
	case err := <-served:
		return fmt.Errorf("the listener ended: %w", err)
	}
}

func ignoreClosed(err error) error {
	if errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}

// shutdown lets the front finish; answers that take too long are no failure of
// the node.
func shutdown(front *broker.Front, log zerolog.Logger) error {
	ctx, cancel := context.WithTimeout(context.Background(), drainTimeout)
	defer cancel()
	if err := front.Shutdown(ctx); err != nil {
		log.Warn().Err(err).Msg("stopping with answers owed")
	}
	return nil
}

// listen binds the listener and finds what address clients are to be told.
func listen(ctx context.Context, cfg *config.Config) (net.Listener, broker.Node, error) {
	address := net.JoinHostPort(cfg.Listener.Host, strconv.Itoa(int(cfg.Listener.Port)))
	ln, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
	if err != nil {
		return nil, broker.Node{}, fmt.Errorf("listening (listeners): %w", err)
	}
	node := broker.Node{ID: cfg.NodeID, Host: cfg.Advertised.Host, Port: cfg.Advertised.Port}
	if node.Host == "" {
		node.Host = cfg.Listener.Host
	}
	if node.Host == "" {
		if node.Host, err = os.Hostname(); err != nil {
			return nil, broker.Node{}, errors.Join(fmt.Errorf("no name to tell clients; set advertised.listeners: %w", err), ln.Close())
		}
	}
	if tcp, ok := ln.Addr().(*net.TCPAddr); ok && node.Port == 0 {
		node.Port = int32(tcp.Port)
	}
	return ln, node, nil
}

// openEmbedded starts the broker role; nil without it.
func openEmbedded(cfg *config.Config, node broker.Node, log zerolog.Logger) (*broker.Embedded, error) {
	if !cfg.Roles.Broker {
		return nil, nil //nolint:nilnil // no role, no broker
	}
	repair := func(dir string) error {
		_, err := durable.Repair(dir, time.Now(), log)
		return err
	}
	return broker.OpenEmbedded(cfg, node, repair, log)
}

// ready tells people and scripts that clients are served.
func ready(cfg *config.Config, node broker.Node, embedded *broker.Embedded, ln net.Listener, readyFile string, log zerolog.Logger) error {
	advertised := net.JoinHostPort(node.Host, strconv.Itoa(int(node.Port)))
	event := log.Info().Stringer("address", ln.Addr()).Str("advertised", advertised).
		Int32("node_id", node.ID).Stringer("roles", cfg.Roles)
	if embedded != nil {
		event = event.Str("cluster_id", embedded.ClusterID()).Str("data", cfg.LogDir).Bool("fsync", cfg.SyncWrites)
	}
	event.Msg("ready")
	if readyFile == "" {
		return nil
	}
	// Renamed, so that a script never reads half an address.
	part := readyFile + ".new"
	err := os.WriteFile(part, []byte(advertised+"\n"), 0o600)
	if err == nil {
		err = os.Rename(part, readyFile)
	}
	if err != nil {
		return fmt.Errorf("--ready-file: %w", err)
	}
	return nil
}

// closers end what was started, last first.
type closers []func() error

func (c *closers) add(f func() error) { *c = append(*c, f) }

func (c *closers) close() error {
	var errs []error
	for i := len(*c) - 1; i >= 0; i-- {
		errs = append(errs, (*c)[i]())
	}
	return errors.Join(errs...)
}
