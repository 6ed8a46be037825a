package main

import (
	"context"
	"fmt"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/kafka-gtc/kafka-gtc/wire"
)

// A whole round of KIP-939 over the wire: a producer prepares, everything dies
// (SIGKILL, twice), the application comes back with KeepPreparedTxn and ends the
// transaction as its own database says, by comparing the pair that it stored.
func TestPrepareCrashKeepComplete(t *testing.T) {
	twoPhase := []string{
		"--override", "transaction.two.phase.commit.enable=true", "--override", "unstable.api.versions.enable=true",
	}
	for _, commit := range []bool{true, false} {
		t.Run(fmt.Sprintf("commit=%t", commit), func(t *testing.T) {
			dir := t.TempDir()
			p := serve(t, dir, twoPhase...)
			stored := initTwoPhase(t, p, false)
			if stored.OngoingTxnProducerID != -1 {
				t.Fatalf("%+v", stored)
			}
			// kgo goes on with the next epoch of the same id.
			cl := p.client(t, kgo.TransactionalID("tid"), kgo.TransactionTimeout(time.Minute))
			if err := cl.BeginTransaction(); err != nil {
				t.Fatal(err)
			}
			produce(t, cl, "a")
			pid, epoch, err := cl.ProducerID(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			p.signal(t, syscall.SIGKILL)
			p.exit(t)

			p = serve(t, dir, twoPhase...)
			kept := initTwoPhase(t, p, true)
			p.signal(t, syscall.SIGKILL) // the client has its pair, and so has the disk
			p.exit(t)

			p = serve(t, dir, twoPhase...)
			if kept.OngoingTxnProducerID != pid || kept.OngoingTxnProducerEpoch != epoch {
				t.Fatalf("ongoing %d/%d, stored %d/%d", kept.OngoingTxnProducerID, kept.OngoingTxnProducerEpoch, pid, epoch)
			}
			if got := endTxn(t, p, pid, epoch, !commit); got.ErrorCode != kerr.ProducerFenced.Code {
				t.Errorf("the old producer: %v", kerr.ErrorForCode(got.ErrorCode))
			}
			done := endTxn(t, p, kept.ProducerID, kept.ProducerEpoch, commit)
			if done.ErrorCode != 0 {
				t.Fatalf("EndTxn: %v", kerr.ErrorForCode(done.ErrorCode))
			}
			p.signal(t, syscall.SIGKILL)
			p.exit(t)

			p = serve(t, dir, twoPhase...)
			if again := endTxn(t, p, kept.ProducerID, kept.ProducerEpoch, commit); again.ErrorCode != 0 || again.ProducerID != done.ProducerID || again.ProducerEpoch != done.ProducerEpoch {
				t.Errorf("the same EndTxn after another restart: %+v, want %+v", again, done)
			}
			var want []string
			if commit {
				want = []string{"a"}
			}
			if got := visibleOn(t, participantCluster{addr: p.addr}, "t"); !slices.Equal(got, want) {
				t.Errorf("visible %q, want %q", got, want)
			}
		})
	}
}

func initTwoPhase(t *testing.T, p *process, keep bool) *wire.InitProducerIDResponseV6 {
	t.Helper()
	req := wire.NewPtrInitProducerIDRequestV6()
	req.TransactionalID, req.Enable2PC, req.KeepPreparedTxn = kmsg.StringPtr("tid"), true, keep
	resp, ok := askProcess(t, p, req).(*wire.InitProducerIDResponseV6)
	if !ok || resp.ErrorCode != 0 {
		t.Fatalf("InitProducerId: %+v", resp)
	}
	return resp
}

func endTxn(t *testing.T, p *process, pid int64, epoch int16, commit bool) *kmsg.EndTxnResponse {
	t.Helper()
	req := kmsg.NewPtrEndTxnRequest()
	req.Version, req.TransactionalID, req.ProducerID, req.ProducerEpoch, req.Commit = 5, "tid", pid, epoch, commit
	return askProcess(t, p, req).(*kmsg.EndTxnResponse)
}

func askProcess(t *testing.T, p *process, req kmsg.Request) kmsg.Response {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	resp, err := p.client(t, kgo.MaxVersions(wire.Versions())).SeedBrokers()[0].Request(ctx, req)
	if err != nil {
		t.Fatal(err)
	}
	return resp
}
