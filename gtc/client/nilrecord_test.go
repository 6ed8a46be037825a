package client

import (
	"errors"
	"testing"
)

func TestANilRecordAbortsAndDoesNotPanic(t *testing.T) {
	e := newEnv(t)
	cl := e.open(t)
	txn := begin(t, cl)
	produce(t, txn, "us", "a")
	if err := txn.ProduceSync(t.Context(), "eu", nil).FirstErr(); err == nil {
		t.Error("a nil record was written")
	}
	var record *RecordError
	if _, err := txn.Commit(deadline(t, patience)); !errors.As(err, new(*AbortedError)) || !errors.As(err, &record) || record.Cluster != "eu" {
		t.Errorf("Commit = %v, want an AbortedError because of eu's record", err)
	}
	produce(t, begin(t, cl), "us", "b")
}
