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
	var parts closers
	defer func() { err = errors.Join(err, parts.close()) }()

	if cfg.LogDir != "" && cfg.Roles.Broker {
		release, lockErr := broker.LockDir(cfg.LogDir)
		if lockErr != nil {
			return lockErr
		}
		parts.add(release)
	}
	ln, node, err := listen(ctx, cfg)
	if err != nil {
		return err
	}
	parts.add(func() error { return ignoreClosed(ln.Close()) })

	failed := make(chan error, 1)
	opts := broker.Options{Config: cfg, Node: node, Now: time.Now, Log: log, Fatal: func(err error) {
		select {
		case failed <- err:
		default: // the first is told
		}
	}}
	if cfg.Roles.Broker {
		if err = openEmbedded(&opts, &parts); err != nil {
			return err
		}
	}
	if cfg.Roles.GTC {
		coordinator, stop, startErr := startCoordinator(ctx, opts, f)
		if startErr != nil {
			return startErr
		}
		parts.add(stop)
		opts.Coordinator = coordinator
	}
	front, err := broker.NewFront(ctx, opts)
	if err != nil {
		return err
	}
	parts.add(func() error { return shutdown(front, log) })

	served := make(chan error, 1)
	go func() { served <- front.Serve(ln) }()
	if err := ready(opts, ln, f.readyFile); err != nil {
		return err
	}
	select {
	case <-ctx.Done():
		log.Info().Msg("stopping")
		return nil
	case err := <-served:
		return fmt.Errorf("the listener ended: %w", err)
	case err := <-failed:
		return fmt.Errorf("the data directory cannot be written: %w", err)
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

// openEmbedded starts the broker role on its data directory, mended first.
func openEmbedded(opts *broker.Options, parts *closers) error {
	var journal *durable.Journal
	prepare := func(dir string) error {
		if _, err := durable.Repair(dir, time.Now(), opts.Log); err != nil {
			return err
		}
		var err error
		if journal, err = durable.OpenJournal(dir, time.Now); err == nil {
			parts.add(journal.Close)
		}
		return err
	}
	embedded, err := broker.OpenEmbedded(opts.Config, opts.Node, prepare, opts.Log)
	if err != nil {
		return err
	}
	parts.add(func() error { embedded.Close(); return nil })
	opts.Embedded = embedded
	if journal != nil {
		opts.Journal = journal
	}
	return nil
}

// ready tells people and scripts that clients are served.
func ready(opts broker.Options, ln net.Listener, readyFile string) error {
	cfg := opts.Config
	event := opts.Log.Info().Stringer("address", ln.Addr()).Str("advertised", opts.Node.Addr()).
		Int32("node_id", opts.Node.ID).Stringer("roles", cfg.Roles)
	if opts.Embedded != nil {
		event = event.Str("cluster_id", opts.Embedded.ClusterID()).Str("data", cfg.LogDir).Bool("fsync", cfg.SyncWrites)
	}
	event.Msg("ready")
	if readyFile == "" {
		return nil
	}
	// Renamed, so that a script never reads half an address.
	part := readyFile + ".new"
	err := os.WriteFile(part, []byte(opts.Node.Addr()+"\n"), 0o600)
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
