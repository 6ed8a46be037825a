// Package program is what the long-running commands have in common: how they
// log, how they end, and how they show what is wrong and how they fare.
package program

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/mattn/go-isatty"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/rs/zerolog"
	"github.com/spf13/cobra"

	"github.com/kafka-gtc/kafka-gtc/wire/plain"
)

// Main runs a command until it ends by itself or SIGTERM or SIGINT ends its
// context; a second signal ends the process at once. The log goes to standard
// error, readable on a terminal and as JSON otherwise. An error is logged, each
// of several on a line of its own, and the exit code is 1.
func Main(command func(zerolog.Logger) *cobra.Command) {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	// From the first signal on the next one has its usual effect.
	context.AfterFunc(ctx, stop)

	log := newLogger(os.Stderr)
	if err := command(log).ExecuteContext(ctx); err != nil {
		report(log, err)
		os.Exit(1)
	}
}

// newLogger writes for a person on a terminal and for a machine otherwise.
func newLogger(w *os.File) zerolog.Logger {
	zerolog.TimeFieldFormat = zerolog.TimeFormatUnixMs
	var out io.Writer = machine{w}
	if isatty.IsTerminal(w.Fd()) {
		out = person(w)
	}
	return zerolog.New(out).With().Timestamp().Logger()
}

// person writes lines in which nothing that others have chosen is more than text.
// The console writer itself quotes texts with a space or worse, but neither the
// message nor what is in a list, and cuts nothing.
func person(w io.Writer) io.Writer {
	value := func(v any) string { return plain.Text(fmt.Sprintf("%s", v)) }
	return zerolog.ConsoleWriter{
		Out: w, TimeFormat: time.TimeOnly, FormatFieldValue: value, FormatErrFieldValue: value,
		FormatPrepare: func(event map[string]any) error {
			if message, ok := event[zerolog.MessageFieldName].(string); ok {
				event[zerolog.MessageFieldName] = plain.Text(message)
			}
			return nil
		},
	}
}

// machine writes JSON of the exact values. It may be looked at, too: the encoder
// leaves DEL, C1 and bidi controls as they are.
type machine struct{ w io.Writer }

func (m machine) Write(event []byte) (int, error) {
	if _, err := m.w.Write(plain.JSON(event)); err != nil {
		return 0, err
	}
	return len(event), nil
}

// report logs each of several errors on a line of its own.
func report(log zerolog.Logger, err error) {
	joined, ok := err.(interface{ Unwrap() []error })
	if !ok {
		log.Error().Msg(err.Error())
		return
	}
	for _, e := range joined.Unwrap() {
		log.Error().Msg(e.Error())
	}
}

// ServeMetrics offers metrics to Prometheus at a host:port (metrics.listener),
// under /metrics, until the function that it returns is called.
func ServeMetrics(ctx context.Context, address string, metrics prometheus.Gatherer, log zerolog.Logger) (stop func() error, err error) {
	ln, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
	if err != nil {
		return nil, fmt.Errorf("listening (metrics.listener): %w", err)
	}
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(metrics, promhttp.HandlerOpts{MaxRequestsInFlight: 4, Timeout: 10 * time.Second}))
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second, IdleTimeout: time.Minute}
	served := make(chan struct{})
	go func() {
		defer close(served)
		if err := server.Serve(ln); !errors.Is(err, http.ErrServerClosed) {
			log.Error().Err(err).Msg("metrics are no longer served")
		}
	}()
	log.Info().Stringer("address", ln.Addr()).Msg("metrics under /metrics")
	return func() error {
		err := server.Close()
		<-served
		return err
	}, nil
}
