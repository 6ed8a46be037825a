package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"

	"github.com/kafka-gtc/kafka-gtc/broker"
	"github.com/kafka-gtc/kafka-gtc/broker/config"
)

// door is one listener, bound.
type door struct {
	net.Listener
	name string
	as   broker.Listener
}

// listenAll binds every listener. The first one's address is what a node that
// does not ask through another one is told of this node. With an error it
// returns those that are to be closed.
func listenAll(ctx context.Context, cfg *config.Config) (doors []door, node broker.Node, err error) {
	for _, l := range cfg.Listeners {
		ln, advertised, err := listenOne(ctx, cfg.NodeID, l)
		if err != nil {
			return doors, node, err
		}
		d := door{Listener: ln, name: l.Name}
		doors = append(doors, d)
		if doors[len(doors)-1].as, err = broker.NewListener(l, advertised); err != nil {
			return doors, node, err
		}
	}
	return doors, doors[0].as.Advertised, nil
}

func closeAll(doors []door) error {
	var errs []error
	for _, d := range doors {
		errs = append(errs, ignoreClosed(d.Close()))
	}
	return errors.Join(errs...)
}

// listenOne binds one listener and finds what address clients are to be told.
func listenOne(ctx context.Context, nodeID int32, l config.Listener) (net.Listener, broker.Node, error) {
	ln, err := (&net.ListenConfig{}).Listen(ctx, "tcp", net.JoinHostPort(l.Bind.Host, strconv.Itoa(int(l.Bind.Port))))
	if err != nil {
		return nil, broker.Node{}, fmt.Errorf("listening (listeners): %w", err)
	}
	node := broker.Node{ID: nodeID, Host: l.Advertised.Host, Port: l.Advertised.Port}
	if node.Host == "" {
		node.Host = l.Bind.Host
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
