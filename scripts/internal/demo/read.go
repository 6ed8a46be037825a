package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/kafka-gtc/kafka-gtc/conformance/readback"
)

// verdict reads every topic of both clusters from the start with an
// independent read_committed consumer and compares what it sees with what each
// transaction was told.
func (d *demo) verdict(ctx context.Context, addrs map[string]string) error {
	labels := []string{"committed", "aborted", "recovered"}
	visible := map[string]int{}
	readCtx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	torn := false
	for name, addr := range addrs {
		counts := map[string]int{}
		reader := readback.NewReader(addr)
		defer reader.Close()
		for _, topic := range topics[name] {
			values, err := reader.Values(readCtx, topic)
			if err != nil {
				return fmt.Errorf("read %s on %s: %w", topic, name, err)
			}
			for _, v := range values {
				label, _, _ := strings.Cut(v, "-")
				counts[label]++
			}
		}
		d.say("read_committed on %s: %d committed, %d aborted, %d recovered records", name, counts["committed"], counts["aborted"], counts["recovered"])
		for _, label := range labels {
			switch want := perTopic * len(topics[name]); counts[label] {
			case 0:
			case want:
				visible[label]++
			default:
				torn = true
			}
		}
	}
	n := len(addrs)
	fmt.Fprintf(d.out, "atomic: committed visible on %d of %d clusters, aborted visible on %d of %d, recovered visible on %d of %d\n",
		visible["committed"], n, visible["aborted"], n, visible["recovered"], n)
	if torn || visible["committed"] != n || visible["aborted"] != 0 || visible["recovered"] != n {
		return errors.New("not atomic")
	}
	return nil
}
