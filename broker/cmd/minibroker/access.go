package main

import (
	"context"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/kafka-gtc/kafka-gtc/broker"
	"github.com/kafka-gtc/kafka-gtc/broker/acl"
	"github.com/kafka-gtc/kafka-gtc/gtc/service"
)

// accessControl finds who knows passwords and ACLs: the embedded broker, or on
// a node that is gtc alone the home cluster.
func accessControl(ctx context.Context, opts *broker.Options, parts *closers) error {
	cfg := opts.Config
	if cfg.Home != nil {
		dial, err := broker.HomeDialer(*cfg.Home)
		if err != nil {
			return err
		}
		opts.DialHome = dial
	}
	if cfg.Authorizer == nil {
		return nil
	}
	o := acl.Options{
		SuperUsers: cfg.Authorizer.SuperUsers, AllowIfNoACL: cfg.Authorizer.AllowIfNoACL,
		After: time.After, Log: opts.Log,
	}
	if opts.Embedded != nil {
		// Nobody but the front changes them, and the front says so.
		o.Source, o.All = opts.Embedded.ACLs, true
	} else {
		home, err := clientOpts(*cfg.Home)
		if err != nil {
			return err
		}
		cl, err := kgo.NewClient(append(home, kgo.RequestRetries(1))...)
		if err != nil {
			return err
		}
		parts.add(func() error { cl.Close(); return nil })
		o.Interval = cfg.Authorizer.RefreshInterval
		o.Source = func(ctx context.Context, req kmsg.Request) (kmsg.Response, error) { return cl.Request(ctx, req) }
	}
	opts.ACLs = acl.NewCache(ctx, o)
	parts.add(func() error { opts.ACLs.Close(); return nil })
	return nil
}

// authorizer is the coordinator's; nil when everybody may do everything.
func authorizer(opts broker.Options) service.Authorizer {
	if opts.ACLs == nil {
		return nil
	}
	return acl.Coordinator{Cache: opts.ACLs}
}
