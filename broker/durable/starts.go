package durable

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"path/filepath"
)

// startsFile is ours; kfake leaves it alone.
const startsFile = "deleted.records"

// Start is where the log of a partition begins after a DeleteRecords. kfake
// writes that down in Close alone, and when it has deleted all files of a
// partition it leaves nothing that tells where the log went on.
type Start struct {
	TopicID   [16]byte
	Partition int32
	// Offset is the first offset that is not deleted; 0 while the request has
	// no answer.
	Offset int64
	// End is an offset that the log had reached when the request came.
	End int64
}

type startsJSON struct {
	Version int         `json:"version"`
	Starts  []startJSON `json:"starts"`
}

type startJSON struct {
	TopicID   string `json:"topicId"` // base64
	Partition int32  `json:"partition"`
	Offset    int64  `json:"offset,omitempty"`
	End       int64  `json:"end"`
}

// SaveStarts replaces the starts of a data directory, and returns when that is
// on the disk. Repair moves them into the snapshots.
func SaveStarts(dir string, starts []Start) error {
	f := startsJSON{Version: persistVersion}
	for _, s := range starts {
		f.Starts = append(f.Starts, startJSON{base64.StdEncoding.EncodeToString(s.TopicID[:]), s.Partition, s.Offset, s.End})
	}
	data, err := json.Marshal(f)
	if err != nil {
		return fmt.Errorf("durable: encoding %s: %w", startsFile, err)
	}
	return writeFile(filepath.Join(dir, startsFile), data)
}

// starts are those of the file, by topic and partition.
type starts map[startAt]startJSON

type startAt struct {
	topicID   string
	partition int32
}

func readStarts(dir string) (starts, error) {
	var f startsJSON
	if _, err := readJSON(filepath.Join(dir, startsFile), &f, &f.Version); err != nil {
		return nil, err
	}
	all := make(starts)
	for _, s := range f.Starts {
		all[startAt{s.TopicID, s.Partition}] = s
	}
	return all, nil
}
