//go:build kafka

package report

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// dom is what a browser makes of the page, with its scripts run.
func dom(t *testing.T, page, anchor string) string {
	t.Helper()
	browser := "chromium"
	if at := os.Getenv("CHROMIUM"); at != "" {
		browser = at
	}
	var out []byte
	var err error
	for range 3 { // a browser that has no time may end, or stand still, before it shows anything
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
		cmd := exec.CommandContext(ctx, browser, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
			"--user-data-dir="+t.TempDir(), "--virtual-time-budget=2000", "--dump-dom", "file://"+page+anchor)
		out, err = cmd.Output()
		cancel()
		if err == nil && strings.Contains(string(out), "</html>") {
			return string(out)
		}
	}
	t.Fatalf("%s: %v: %s (CHROMIUM names another browser)", browser, err, out)
	return ""
}

// The build tag is that of tests that need more than Go: here a browser.
func TestABrowserShowsTheMatrixAndOpensAFailedCase(t *testing.T) {
	page := filepath.Join(t.TempDir(), "report.html")
	f, err := os.Create(page)
	if err != nil {
		t.Fatal(err)
	}
	if err = WriteHTML(f, sample()); err != nil {
		t.Fatal(err)
	}
	if err = f.Close(); err != nil {
		t.Fatal(err)
	}
	closed := dom(t, page, "")
	if !strings.Contains(closed, `<table id="matrix">`) || strings.Count(closed, `class="case"`) != 2 {
		t.Error("the matrix is not there, or has other rows than two cases")
	}
	if strings.Contains(closed, "<details id=\"LIFE-01-2\" open") {
		t.Error("the failed case is open before it was asked for")
	}
	opened := dom(t, page, "#LIFE-01-2")
	_, details, found := strings.Cut(opened, `<details id="LIFE-01-2" open`)
	if !found {
		t.Fatal("the anchor of a failed case does not open it")
	}
	details, _, _ = strings.Cut(details, "</details>")
	if n := strings.Count(details, `<g class="message">`); !strings.Contains(details, "<svg") || n != 3 {
		t.Errorf("its diagram has %d messages, want 3", n)
	}
}
