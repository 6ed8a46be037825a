package client_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/kafka-gtc/kafka-gtc/gtc/client"
)

func (p *place) options(id string) client.Options {
	return client.Options{
		GlobalTransactionalID: id,
		Coordinator:           []string{p.gtc},
		Clusters: map[string]client.Cluster{
			"us": {ClientOpts: []kgo.Opt{kgo.SeedBrokers(p.us)}},
			"eu": {ClientOpts: []kgo.Opt{kgo.SeedBrokers(p.eu)}},
		},
	}
}

// One order, written to two clusters or to none.
func Example() {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	p := somewhere(ctx, "orders")
	defer p.stop()

	cl, err := client.Open(ctx, p.options("orders-1"))
	if err != nil {
		log.Print(err)
		return
	}
	defer func() {
		if closeErr := cl.Close(ctx); closeErr != nil {
			log.Print(closeErr)
		}
	}()

	txn, err := cl.Begin(ctx)
	if err != nil {
		log.Print(err)
		return
	}
	// A record that fails makes Commit abort on both clusters, so its own
	// result need not be looked at.
	v := []byte("2 chairs")
	txn.Produce(ctx, "us", &kgo.Record{Topic: "orders", Value: v}, nil)
	txn.Produce(ctx, "eu", &kgo.Record{Topic: "orders", Value: v}, nil)

	result, err := txn.Commit(ctx)
	var aborted *client.AbortedError
	var unknown *client.UnknownOutcomeError
	switch {
	case err == nil:
		fmt.Println(result.Outcome)
	case errors.As(err, &aborted):
		log.Printf("nothing is visible anywhere, do the work again: %v", aborted)
	case errors.As(err, &unknown) && !unknown.Final:
		log.Printf("perhaps committed: call Commit again, not Produce: %v", unknown)
	default: // *client.HeuristicError, *client.FencedError
		log.Print(err)
	}
	p.show(ctx, "us", p.us, "orders")
	p.show(ctx, "eu", p.eu, "orders")
	// Output:
	// committed
	// us orders [2 chairs]
	// eu orders [2 chairs]
}

// Orders are read on us, in a group, and become bills on eu. The group's offsets
// and the bills are one transaction; any number of such processes may run.
func ExampleGroupSession() {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	p := somewhere(ctx, "orders", "bills")
	defer p.stop()
	if err := p.order(ctx, "2 chairs", "1 table"); err != nil {
		log.Print(err)
		return
	}

	s, err := client.NewGroupSession(ctx, client.GroupSessionOptions{
		Client:       p.options("billing-1"), // each process has its own
		Cluster:      "us",
		ConsumerOpts: []kgo.Opt{kgo.ConsumerGroup("billing"), kgo.ConsumeTopics("orders")},
	})
	if err != nil {
		log.Print(err)
		return
	}
	defer func() {
		if closeErr := s.Close(ctx); closeErr != nil {
			log.Print(closeErr)
		}
	}()
	for done := 0; done < 2; {
		fetches := s.Poll(ctx, 100)
		if err := fetches.Err0(); err != nil {
			log.Print(err)
			return
		}
		if fetches.NumRecords() == 0 {
			continue
		}
		txn, err := s.Begin(ctx)
		if err != nil {
			log.Print(err)
			return
		}
		fetches.EachRecord(func(r *kgo.Record) {
			txn.Produce(ctx, "eu", &kgo.Record{Topic: "bills", Value: append([]byte("bill for "), r.Value...)}, nil)
		})
		_, committed, err := s.End(ctx, true)
		switch {
		case committed:
			done += fetches.NumRecords()
		case err == nil || errors.As(err, new(*client.AbortedError)):
			// Nothing is visible, and the orders come again.
		default:
			log.Print(err) // an unknown outcome: call End again; else the session has stopped
			return
		}
	}
	p.show(ctx, "eu", p.eu, "bills")
	// Output:
	// eu bills [bill for 1 table bill for 2 chairs]
}

// order writes orders with an ordinary producer.
func (p *place) order(ctx context.Context, orders ...string) error {
	cl, err := kgo.NewClient(kgo.SeedBrokers(p.us), kgo.DefaultProduceTopic("orders"))
	if err != nil {
		return err
	}
	defer cl.Close()
	for _, o := range orders {
		if err := cl.ProduceSync(ctx, kgo.StringRecord(o)).FirstErr(); err != nil {
			return err
		}
	}
	return nil
}
