package client_test

import (
	"context"
	"errors"
	"log"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/kafka-gtc/kafka-gtc/gtc/client"
)

// One order, written to two clusters or to none. It needs a coordinator and two
// clusters, so it is compiled and not run.
func Example() {
	ctx := context.Background()
	cl, err := client.Open(ctx, client.Options{
		GlobalTransactionalID: "orders-mirror-1",
		Coordinator:           []string{"gtc:9092"},
		Clusters: map[string]client.Cluster{
			"us": {ClientOpts: []kgo.Opt{kgo.SeedBrokers("us:9092")}},
			"eu": {ClientOpts: []kgo.Opt{kgo.SeedBrokers("eu:9092")}},
		},
	})
	if err != nil {
		log.Fatal(err)
	}
	defer func() {
		if closeErr := cl.Close(ctx); closeErr != nil {
			log.Print(closeErr)
		}
	}()

	txn, err := cl.Begin(ctx)
	if err != nil {
		log.Fatal(err)
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
		log.Printf("committed; clusters that have not answered yet: %v", result.Pending())
	case errors.As(err, &aborted):
		log.Printf("nothing is visible anywhere, do the work again: %v", aborted)
	case errors.As(err, &unknown) && !unknown.Final:
		log.Printf("perhaps committed: call Commit again, not Produce: %v", unknown)
	default: // *client.HeuristicError, *client.FencedError
		log.Fatal(err)
	}
}
