// Command kafka-global-mirror mirrors topics between Kafka clusters exactly
// once, with MirrorMaker's property conventions.
//
//	kafka-global-mirror mirror.properties [--override key=value]...
//
// It logs to standard error, readable on a terminal and as JSON otherwise, ends
// cleanly on SIGTERM and SIGINT, and with exit code 1 on what a person has to
// look at. Any number of them share the work, each with its own instance.id.
package main

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

	"github.com/kafka-gtc/kafka-gtc/gtc/mirror"
	"github.com/kafka-gtc/kafka-gtc/gtc/mirror/config"
)

func main() {
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

func command(log zerolog.Logger) *cobra.Command {
	var overrides []string
	var helpConfig, check bool
	cmd := &cobra.Command{
		Use:           "kafka-global-mirror properties-file",
		Short:         "Mirror topics between Kafka clusters exactly once",
		Args:          cobra.MaximumNArgs(1),
		SilenceErrors: true,
		SilenceUsage:  true,
		RunE: func(cmd *cobra.Command, args []string) error {
			if helpConfig {
				return config.PrintHelp(cmd.OutOrStdout())
			}
			if len(args) != 1 {
				return errors.New("name the properties file; --help-config lists the keys")
			}
			cfg, err := config.Load(args[0], overrides)
			if err != nil || check {
				return err
			}
			level, err := zerolog.ParseLevel(cfg.LogLevel)
			if err != nil {
				return err
			}
			return run(cmd.Context(), cfg, log.Level(level))
		},
	}
	cmd.Flags().StringArrayVar(&overrides, "override", nil, "set key=value over the file; may be repeated")
	cmd.Flags().BoolVar(&helpConfig, "help-config", false, "describe every configuration key and end")
	cmd.Flags().BoolVar(&check, "check", false, "check the configuration and end")
	return cmd
}

func run(ctx context.Context, cfg *config.Config, log zerolog.Logger) error {
	registry := prometheus.NewRegistry()
	o := cfg.Mirror
	o.Clock, o.Logger, o.Registerer = mirror.SystemClock(), log, registry
	m, err := mirror.New(o)
	if err != nil {
		return err
	}
	if cfg.Metrics != "" {
		stop, err := serveMetrics(ctx, cfg.Metrics, registry, log)
		if err != nil {
			return err
		}
		defer stop()
	}
	return m.Run(ctx)
}

// serveMetrics offers /metrics until stop is called.
func serveMetrics(ctx context.Context, addr string, registry *prometheus.Registry, log zerolog.Logger) (stop func(), err error) {
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("metrics.listener: %w", err)
	}
	mux := http.NewServeMux()
	mux.Handle("/metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second}
	go func() {
		if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			log.Error().Err(err).Msg("metrics are no longer served")
		}
	}()
	log.Info().Str("address", l.Addr().String()).Msg("metrics on /metrics")
	return func() { _ = server.Close() }, nil
}

// newLogger writes for a person on a terminal and for a machine otherwise.
func newLogger(w *os.File) zerolog.Logger {
	var out io.Writer = w
	if isatty.IsTerminal(w.Fd()) {
		out = zerolog.ConsoleWriter{Out: w, TimeFormat: time.TimeOnly}
	}
	zerolog.TimeFieldFormat = zerolog.TimeFormatUnixMs
	return zerolog.New(out).With().Timestamp().Logger()
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
