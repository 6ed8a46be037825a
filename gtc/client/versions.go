package client

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"
)

// Keys of requests with versions of our choice. Those of transactions follow the
// cluster's transaction.version (Kafka, TransactionVersion.java).
const (
	keyProduce         int16 = 0
	keyTxnOffsetCommit int16 = 28
	keyOffsetFetch     int16 = 9
)

// openRaw makes the client for what does not go through kgo's transactions.
func (p *participant) openRaw(ctx context.Context) error {
	implicit, err := p.transactionV2(ctx)
	if err != nil {
		return err
	}
	if p.raw != nil && implicit == p.implicit {
		return nil
	}
	versions := copied(p.maxVersions())
	if v, ok := versions.LookupMaxKeyVersion(keyInitProducerID); ok && v == initProducerIDStable {
		versions.SetMaxKeyVersion(keyInitProducerID, initProducerID2PC)
	}
	// From the next version on topics have ids and no names.
	lower(versions, keyOffsetFetch, 9)
	if implicit {
		lower(versions, keyTxnOffsetCommit, 5)
	} else {
		lower(versions, keyTxnOffsetCommit, 4)
		lower(versions, keyEndTxn, 4)
	}
	cl, err := kgo.NewClient(with(p.conf.ClientOpts, kgo.Dialer(p.dial()), kgo.MaxVersions(versions),
		kgo.WithHooks(append(shared(p.conf.Hooks), &p.writes)...))...)
	if err != nil {
		return err
	}
	if p.raw != nil {
		p.raw.Close()
	}
	p.raw, p.implicit = cl, implicit
	return nil
}

// transactionV2 reports whether the cluster's transactions are those of
// KIP-890, by its finalized feature and not by the versions of requests that it
// offers: a cluster at transaction.version 1 that could do 2 executes EndTxn v5
// with the epoch bump (measured, 4.4.0), and its producers are then fenced. kgo
// decides in the same way.
func (p *participant) transactionV2(ctx context.Context) (bool, error) {
	for key, least := range map[int16]int16{keyProduce: 12, keyEndTxn: 5, keyTxnOffsetCommit: 5} {
		if v, ok := p.maxVersions().LookupMaxKeyVersion(key); !ok || v < least {
			return false, nil // the application's own kgo.MaxVersions
		}
	}
	req := kmsg.NewPtrApiVersionsRequest()
	req.ClientSoftwareName, req.ClientSoftwareVersion = "kafka-gtc", "0"
	resp, err := req.RequestWith(ctx, p.kgo)
	if err != nil {
		return false, fmt.Errorf("ask for its features: %w", err)
	}
	for _, f := range resp.FinalizedFeatures {
		if f.Name == "transaction.version" {
			return f.MaxVersionLevel >= 2, nil
		}
	}
	return false, nil
}

func (p *participant) maxVersions() *kversion.Versions {
	if own, _ := p.kgo.OptValue(kgo.MaxVersions).(*kversion.Versions); own != nil {
		return own
	}
	return kversion.Stable()
}

func copied(from *kversion.Versions) *kversion.Versions {
	to := new(kversion.Versions)
	from.EachMaxKeyVersion(to.SetMaxKeyVersion)
	return to
}

func lower(versions *kversion.Versions, key, to int16) {
	if v, ok := versions.LookupMaxKeyVersion(key); ok && v > to {
		versions.SetMaxKeyVersion(key, to)
	}
}

// writes counts the copies that a kgo client sends of requests of which none
// may be left under way: kgo asks again by itself when a connection ends.
type writes struct{ ends, offsets atomic.Int64 }

// OnBrokerWrite is kgo's hook, and called before the answer is waited for.
func (w *writes) OnBrokerWrite(_ kgo.BrokerMetadata, key int16, _ int, _, _ time.Duration, _ error) {
	switch key {
	case keyEndTxn:
		w.ends.Add(1)
	case keyTxnOffsetCommit:
		w.offsets.Add(1)
	}
}
