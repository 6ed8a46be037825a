package durable

import (
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// Offline is a partition whose files are damaged. kfake must not open them: it
// cuts a log off where it cannot read on. So they are set aside, and the broker
// serves the partition to nobody until a start finds files that it can read.
type Offline struct {
	Topic     string
	Partition int32
	Dir       string // where the files are now
	Damage    error
}

// offlineSuffix ends the name of a directory that is set aside so. The id of the
// topic stands before it: a new topic of the same name has none of these records.
const offlineSuffix = ".offline"

func partitionDir(dir, topic string, number int32) string {
	return filepath.Join(dir, partitionsDir, url.PathEscape(topic)+"-"+strconv.Itoa(int(number)))
}

func offlineDir(dir string, topic topicJSON, number int32) string {
	return partitionDir(dir, topic.Name, number) + "." + url.PathEscape(topic.ID) + offlineSuffix
}

// servesWithout says that a broker may go on without a partition that cannot be
// read. It may not without its own: a decision that is missed there is another
// outcome. Nor is a layout that nobody knows one partition's.
func servesWithout(topic string, err error) bool {
	return errors.Is(err, ErrDamaged) && !strings.HasPrefix(topic, "__")
}

// bringBack gives the files that were set aside their place again, to be read
// once more: somebody may have mended them. Where there are records by now,
// somebody has put a copy there, and that is the partition.
func (r *repair) bringBack(names []string) error {
	names = slices.DeleteFunc(names, func(name string) bool { return !strings.HasSuffix(name, offlineSuffix) })
	if len(names) == 0 {
		return nil
	}
	moved := false
	for _, t := range r.topics {
		for n := range int32(t.Partitions) {
			aside, at := offlineDir(r.dir, t, n), partitionDir(r.dir, t.Name, n)
			if !slices.Contains(names, filepath.Base(aside)) {
				continue
			}
			if restored, err := filepath.Glob(filepath.Join(globEscape(at), "*"+segmentSuffix)); err != nil || len(restored) > 0 {
				continue // the other one is of no topic any more
			}
			if err := errors.Join(os.RemoveAll(at), os.Rename(aside, at)); err != nil {
				return fmt.Errorf("durable: %w", err)
			}
			moved = true
		}
	}
	if !moved {
		return nil
	}
	return r.wrote(true, syncDir(r.path(partitionsDir)))
}

// globEscape makes a pattern of a path that matches the path alone.
func globEscape(path string) string {
	return strings.NewReplacer(`\`, `\\`, "*", `\*`, "?", `\?`, "[", `\[`).Replace(path)
}

// takeOffline sets the files of partitions aside.
func (r *repair) takeOffline() error {
	for i := range r.offline {
		o := &r.offline[i]
		at := partitionDir(r.dir, o.Topic, o.Partition)
		if err := r.wrote(true, os.Rename(at, o.Dir)); err != nil {
			return fmt.Errorf("durable: %w", err)
		}
		r.log.Error().Err(o.Damage).Str("topic", o.Topic).Int32("partition", o.Partition).Str("dir", o.Dir).Str("place", at).
			Msg("partition is damaged and stays offline; all others are served. Put a copy of its files into its place, " +
				"or remove the directory to begin it anew, and start again")
	}
	r.report.Offline = r.offline
	if len(r.offline) == 0 {
		return nil
	}
	return syncDir(r.path(partitionsDir))
}
