package durable

import (
	"encoding/json"
	"fmt"
	"path/filepath"
)

// keptFile is ours; Repair and kfake leave it alone.
const keptFile = "kept.transactions"

// Kept is a transaction that its producer has come back to with
// InitProducerId(KeepPreparedTxn): it stays open under the pair that wrote it,
// and the pair that the client was given instead ends it (KIP-939).
type Kept struct {
	TransactionalID   string `json:"id"`
	ProducerID        int64  `json:"pid"`   // of the transaction
	ProducerEpoch     int16  `json:"epoch"` // of the transaction
	NextProducerID    int64  `json:"nextPid"`
	NextProducerEpoch int16  `json:"nextEpoch"`
}

type keptJSON struct {
	Version int    `json:"version"`
	Kept    []Kept `json:"kept"`
}

// LoadKept reads what SaveKept has written to a data directory; nothing when
// it has not.
func LoadKept(dir string) ([]Kept, error) {
	var f keptJSON
	if _, err := readJSON(filepath.Join(dir, keptFile), &f, &f.Version); err != nil {
		return nil, err
	}
	return f.Kept, nil
}

// SaveKept replaces the kept transactions of a data directory, and returns when
// that is on the disk.
func SaveKept(dir string, kept []Kept) error {
	data, err := json.Marshal(keptJSON{Version: persistVersion, Kept: kept})
	if err != nil {
		return fmt.Errorf("durable: encoding %s: %w", keptFile, err)
	}
	return writeFile(filepath.Join(dir, keptFile), data)
}
