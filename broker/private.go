package broker

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// others is what a file of the data directory gives to others: nothing. It has
// salted passwords in it, and everybody's records.
const others fs.FileMode = 0o077

// PrivateFiles lets this process make files for its own user alone, whatever umask
// it was started with. kfake asks for 0644 and 0755.
func PrivateFiles() { unix.Umask(int(others)) }

// notOfOthers refuses a directory, as /tmp, in which somebody has had files before
// it was a data directory, and which is open to others: to take that from them
// could be more than was asked for.
func notOfOthers(dir string) error {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("the data directory (log.dirs): %w", err)
	}
	foreign := ""
	for _, e := range entries {
		switch e.Name() {
		case metaFile:
			return nil
		case lockFile:
		default:
			foreign = e.Name()
		}
	}
	info, err := os.Stat(dir)
	if err != nil || foreign == "" || !exposed(info) {
		return err
	}
	return fmt.Errorf("%s is open to others (%v), and has files (%q) that are not a broker's; give log.dirs a directory of its own", dir, info.Mode().Perm(), foreign)
}

// makePrivate takes the data directory, and what is in it, from others. It returns
// how many files and directories they could have read or written until then.
func makePrivate(dir string) (mended int, err error) {
	if dir, err = filepath.EvalSymlinks(dir); err != nil {
		return 0, fmt.Errorf("the data directory (log.dirs): %w", err)
	}
	err = filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := entry.Info()
		if err != nil || !exposed(info) {
			return err
		}
		if err = closeToOthers(path, info.Mode().Perm()&^others); err != nil {
			return fmt.Errorf("%s is open to others (%v), and that cannot be changed: %w; give it to the user of this process, or choose another log.dirs", path, info.Mode().Perm(), err)
		}
		mended++
		return nil
	})
	return mended, err
}

func closeToOthers(path string, mode fs.FileMode) error {
	if err := os.Chmod(path, mode); err != nil {
		return err
	}
	info, err := os.Lstat(path)
	if err == nil && exposed(info) {
		return errors.New("its file system keeps no permissions")
	}
	return err
}

// exposed says that others may do something with a file. A link is as its target.
func exposed(info fs.FileInfo) bool {
	return info.Mode()&fs.ModeSymlink == 0 && info.Mode().Perm()&others != 0
}
