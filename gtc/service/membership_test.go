package service_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/kafka-gtc/kafka-gtc/gtc"
	"github.com/kafka-gtc/kafka-gtc/gtc/service"
	"github.com/kafka-gtc/kafka-gtc/txnlog/memlog"
	"github.com/kafka-gtc/kafka-gtc/wire"
)

// told is a Membership that says what a test wants.
type told struct {
	mu    sync.Mutex
	owner map[int32]service.Node
	gone  error // the answer of Confirm
	asked int
}

func (m *told) Owner(p int32) (service.Node, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	n, known := m.owner[p]
	return n, known
}

func (m *told) Confirm(context.Context) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.asked++
	return m.gone
}

func (m *told) say(gone error) (askedBefore int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.gone = gone
	return m.asked
}

func (m *told) times() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.asked
}

func withMembership(t *testing.T, store *memlog.Store, m service.Membership) *service.Service {
	t.Helper()
	log := store.Open()
	s, err := service.New(service.Options{
		Log: log, Participants: &answering{}, Config: gtc.DefaultConfig(), Logger: zerolog.Nop(),
		NodeID: 1, Host: "me", Port: 1, Membership: m, ReloadBackoff: 5 * time.Millisecond,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if err := s.Close(ctx); err != nil {
			t.Error(err)
		}
		log.Close()
	})
	return s
}

func initCode(s *service.Service, id string, instance byte) int16 {
	req := wire.NewPtrInitGlobalTxnRequest()
	req.GlobalTransactionalID, req.TimeoutMillis, req.ClusterIDs, req.InstanceID = id, 1000, []string{"a"}, [16]byte{instance}
	return s.Handle(context.Background(), "", "", req).(*wire.InitGlobalTxnResponse).ErrorCode
}

func TestFindCoordinatorNamesTheOwnerAndNobodyWhileNobodyIsKnown(t *testing.T) {
	m := &told{owner: map[int32]service.Node{}}
	s := withMembership(t, memlog.NewStore(1), m)
	if id, host, port, err := s.FindCoordinator("", "", "id"); err == nil {
		t.Errorf("named %d %s:%d, and nobody is known", id, host, port)
	}
	m.mu.Lock()
	m.owner[0] = service.Node{ID: 2, Host: "other", Port: 7}
	m.mu.Unlock()
	if id, host, port, err := s.FindCoordinator("", "", "id"); id != 2 || host != "other" || port != 7 || err != nil {
		t.Errorf("named %d %s:%d %v, want node 2 at other:7", id, host, port, err)
	}
}

func TestRequestsForAPartitionOfAnotherNodeAreSentOn(t *testing.T) {
	s := withMembership(t, memlog.NewStore(1), &told{})
	if code := initCode(s, "id", 1); code != kerr.NotCoordinator.Code {
		t.Errorf("before it is owned: %d, want NOT_COORDINATOR", code)
	}
	s.Own(0)
	eventually(t, func() error {
		if code := initCode(s, "id", 1); code != 0 {
			return fmt.Errorf("owned: %d", code)
		}
		return nil
	})
	s.Disown(0)
	if code := initCode(s, "id", 1); code != kerr.NotCoordinator.Code {
		t.Errorf("given up: %d, want NOT_COORDINATOR", code)
	}
}

// The order is that of a node that slept: another one has claimed the
// partition, and the group has not told this one yet.
func TestAFencedNodeClaimsAgainOnlyAsAMember(t *testing.T) {
	store, m := memlog.NewStore(1), &told{}
	sleeper := withMembership(t, store, m)
	sleeper.Own(0)
	eventually(t, func() error {
		if code := initCode(sleeper, "id", 1); code != 0 {
			return fmt.Errorf("owned: %d", code)
		}
		return nil
	})
	heir := withMembership(t, store, &told{})
	heir.Own(0)
	eventually(t, func() error {
		if code := initCode(heir, "id", 2); code != 0 {
			return fmt.Errorf("taken over: %d", code)
		}
		return nil
	})

	before := m.say(errors.New("no member any more"))
	if code := initCode(sleeper, "id", 3); code != kerr.CoordinatorLoadInProgress.Code {
		t.Errorf("the sleeper answers %d, want COORDINATOR_LOAD_IN_PROGRESS", code)
	}
	eventually(t, func() error {
		if n := m.times() - before; n < 3 {
			return fmt.Errorf("it has asked the group %d times", n)
		}
		return nil
	})
	// It has had the time of three claims, and the heir still has its own.
	if code := initCode(heir, "id", 4); code != 0 {
		t.Errorf("the heir answers %d: the sleeper has taken the partition back", code)
	}

	m.say(nil)
	eventually(t, func() error {
		if code := initCode(sleeper, "id", 5); code != 0 {
			return fmt.Errorf("a member after all: %d", code)
		}
		return nil
	})
}

// Case: the tool asks all nodes of a group in which nobody owns a partition yet,
// and shows an empty list while a transaction is in doubt.
func TestNoListWithoutThePartitionsThatNobodyOwns(t *testing.T) {
	store := memlog.NewStore(2)
	members := &told{owner: map[int32]service.Node{0: {ID: 1, Host: "me", Port: 1}}}
	s := withMembership(t, store, members)
	s.Own(0)
	list := func() int16 {
		return s.Handle(context.Background(), "", "", wire.NewPtrListGlobalTransactionsRequest()).(*wire.ListGlobalTransactionsResponse).ErrorCode
	}
	if got := list(); got != kerr.CoordinatorNotAvailable.Code {
		t.Errorf("partition 1 has no owner: %v, want COORDINATOR_NOT_AVAILABLE", kerr.ErrorForCode(got))
	}
	members.mu.Lock()
	members.owner[1] = service.Node{ID: 2, Host: "other", Port: 2}
	members.mu.Unlock()
	for deadline := time.Now().Add(patience); list() != 0; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("all partitions have an owner: %v", kerr.ErrorForCode(list()))
		}
	}
}

// A partition that is this node's and not begun yet is in nobody's list.
func TestAListWithAHoleIsNoList(t *testing.T) {
	m := &told{owner: map[int32]service.Node{0: {ID: 1}, 1: {ID: 2}}}
	s := withMembership(t, memlog.NewStore(2), m)
	list := func() int16 {
		return s.Handle(t.Context(), "", "", wire.NewPtrListGlobalTransactionsRequest()).(*wire.ListGlobalTransactionsResponse).ErrorCode
	}
	if code := list(); code != kerr.CoordinatorLoadInProgress.Code {
		t.Errorf("code %d, want COORDINATOR_LOAD_IN_PROGRESS", code)
	}
	s.Own(0)
	eventually(t, func() error { return kerr.ErrorForCode(list()) })
}
