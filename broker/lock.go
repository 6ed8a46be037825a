package broker

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// lockFile is Kafka's name for it.
const lockFile = ".lock"

// ErrLocked says that another process uses the data directory.
var ErrLocked = errors.New("the data directory is in use")

// LockDir makes the caller the only user of a data directory, which it creates
// if need be: two brokers on one log would write over each other. The lock ends
// with the process, however that ends; release ends it earlier.
func LockDir(dir string) (release func() error, err error) {
	if err = os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("preparing the data directory (log.dirs): %w", err)
	}
	f, err := os.OpenFile(filepath.Join(dir, lockFile), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("locking the data directory (log.dirs): %w", err)
	}
	if err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		defer f.Close() //nolint:errcheck // only read
		if !errors.Is(err, unix.EWOULDBLOCK) {
			return nil, fmt.Errorf("locking the data directory %s: %w", dir, err)
		}
		return nil, fmt.Errorf("%w: %s is held by process %s; stop it, or give this one a log.dirs of its own", ErrLocked, dir, holder(f))
	}
	if err = errors.Join(f.Truncate(0), writeAt(f, strconv.Itoa(os.Getpid())+"\n")); err != nil {
		return nil, errors.Join(fmt.Errorf("locking the data directory %s: %w", dir, err), f.Close())
	}
	return f.Close, nil
}

func writeAt(f *os.File, text string) error {
	_, err := f.WriteAt([]byte(text), 0)
	return err
}

// holder is the process id that the holder of the lock has written.
func holder(f io.Reader) string {
	text, err := io.ReadAll(io.LimitReader(f, 32))
	pid := strings.TrimSpace(string(text))
	if _, bad := strconv.Atoi(pid); err != nil || bad != nil {
		return "unknown"
	}
	return pid
}
