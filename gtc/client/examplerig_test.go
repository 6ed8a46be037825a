package client_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"os/exec"
	"path/filepath"
	"slices"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/kafka-gtc/kafka-gtc/conformance/node"
	"github.com/kafka-gtc/kafka-gtc/conformance/readback"
)

// place is what the examples run in: two clusters and a coordinator, which are
// mini-brokers.
type place struct {
	us, eu, gtc string // addresses
	dir         string
	nodes       []*node.Node
}

// somewhere starts them, with topics on both clusters.
func somewhere(ctx context.Context, topics ...string) *place {
	p := &place{}
	if err := p.start(ctx, topics); err != nil {
		p.stop()
		log.Fatal(err)
	}
	return p
}

func (p *place) start(ctx context.Context, topics []string) (err error) {
	if p.dir, err = os.MkdirTemp("", "kafka-gtc-client-"); err != nil {
		return err
	}
	build := exec.CommandContext(ctx, "go", "build", "-o", p.dir, "github.com/kafka-gtc/kafka-gtc/broker/cmd/minibroker")
	if out, buildErr := build.CombinedOutput(); buildErr != nil {
		return fmt.Errorf("%w\n%s", buildErr, out)
	}
	const optIn = "transaction.max.timeout.ms=2147483647"
	for name, addr := range map[string]*string{"us": &p.us, "eu": &p.eu} {
		if *addr, err = p.node(ctx, name, "process.roles=broker", optIn); err != nil {
			return err
		}
		if err = createTopics(ctx, *addr, topics); err != nil {
			return err
		}
	}
	p.gtc, err = p.node(ctx, "gtc", "process.roles=broker,gtc", "gtc.clusters=us,eu",
		"gtc.cluster.us.bootstrap.servers="+p.us, "gtc.cluster.eu.bootstrap.servers="+p.eu,
		"global.transaction.state.log.num.partitions=2")
	return err
}

func (p *place) node(ctx context.Context, name string, properties ...string) (string, error) {
	addr, err := node.FreeAddr(ctx)
	if err != nil {
		return "", err
	}
	n, err := node.New(filepath.Join(p.dir, "minibroker"), p.dir, name, addr,
		append(properties, "listeners=PLAINTEXT://"+addr, "log.dirs="+filepath.Join(p.dir, name)))
	if err != nil {
		return "", err
	}
	p.nodes = append(p.nodes, n)
	return addr, n.Start(ctx)
}

func createTopics(ctx context.Context, addr string, topics []string) error {
	cl, err := kgo.NewClient(kgo.SeedBrokers(addr))
	if err != nil {
		return err
	}
	defer cl.Close()
	resps, err := kadm.NewClient(cl).CreateTopics(ctx, 1, 1, nil, topics...)
	return errors.Join(err, resps.Error())
}

func (p *place) stop() {
	for _, n := range p.nodes {
		if n.Process != nil {
			n.Stop()
		}
	}
	_ = os.RemoveAll(p.dir) // in the system's own place for what is left
}

// show prints what a read_committed reader sees.
func (p *place) show(ctx context.Context, name, addr, topic string) {
	reader := readback.NewReader(addr)
	defer reader.Close()
	values, err := reader.Values(ctx, topic)
	if err != nil {
		log.Print(err)
		return
	}
	slices.Sort(values)
	fmt.Println(name, topic, values)
}
