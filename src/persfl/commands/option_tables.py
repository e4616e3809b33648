"""The options of all commands, one row an option: see `options` for how a table is read."""

from __future__ import annotations

_TABLE = """
table             text     needed  a table: .csv, .tsv, .csv.gz or .parquet
--device COLUMN   text     needed  the column that says whose row it is
--label COLUMN    text     needed  the column to predict
--model MODEL     model    linear  what a model is: linear, mlp, tree, forest, boosting, or
    FILE.py:NAME, a torch module of your own (default %(default)s)
--task            auto|regression|classification  auto  default: as the label looks
--features A,B    names    ''      columns to predict from (default: all others)
--drop A,B        names    ''      columns to leave out
--weight COLUMN   text     -       how much each row counts
--group COLUMN    text     -       groups of devices that get a verdict of their own; not a feature
--impute          switch   -       fill missing values with column means or most frequent categories
--separator CHAR  text     -       between the columns of a CSV (default: found in its first line)
--decimal CHAR    text     .       decimal mark of a CSV (default: a comma where numbers show it,
    else %(default)s)
--thousands CHAR  text     -       mark between thousands in a CSV (default: a comma or a point,
    where numbers show it)
--method NAME     text     blend   how models are made; `persfl methods` lists them (default
    %(default)s)
--set KEY=VALUE   setting*  -      a setting of the method, such as budget=300; `persfl methods
    NAME` lists them
--budget N        whole    -       short for --set budget=N
--peers N         number   -       short for --set peers=N
--rounds N        number   -       short for --set rounds=N
--step-size X     number   -       short for --set step_size=X
--epsilon X       float    -       protect every device's rows with so large a privacy budget, and
    see what that costs: a simulation, with all rows in one place (docs/privacy.md)
--ordered         switch   -       rows come in the order of time
--time COLUMN     text     -       when each row was: numbers, or dates such as 2024-05-31. Rows are
    put in that order, and later ones judge; not a feature unless --features lists it
--blocks COLUMN   text     -       rows with the same entry are hidden together at all devices at
    once; likewise
--gap SPAN        text     -       how much before the rows held back is not learned from: in units
    of --time (7D where it holds dates), or in rows
--horizon SPAN    text     -       how far ahead is judged, likewise
--units           auto|shared|centred|raw  auto  scale of features and label
--public FILE     text     -       public points for trees, forests, boosting (default: made up)
--holdout SHARE   float    0.25    rows held back to judge by (default %(default)s)
--trials N        number   auto    how often to hold back other rows
--seed SEED       int      0       the same seed gives the same result (default %(default)s)
--jobs N          int      1       parallel processes for trees, forests, boosting, and of --engine
    (default %(default)s)
--compute WHERE   text     -       where steps are computed: cuda for a GPU (default: this
    processor)
--precision       float32|tf32|bf16  float32  of networks' products on a GPU: float32 is exact, the
    others are faster
--memory GIB      float    -       of what networks compute at once (default: a share of what is
    free)
--json            switch   -       progress and result as JSON lines
"""
_VERBATIM = """
--verbatim  switch  -  texts in a .csv as they are (default: a ' before those that a spreadsheet
    would run as a formula)
"""
_RUN_FOLDER = """
run                    text  needed  a run folder, as `persfl fit --out` makes it
--module FILE.py:NAME  text  -       the torch module of a run that was fitted with one of your own
"""

DEMO = """
--out FOLDER  text    persfl-demo  where it goes (default %(default)s)
--json        switch  -            progress and result as JSON lines
"""
FIT = f"""{_TABLE}
--out FOLDER  text    needed  the run folder to make
--engine NAME  text   -       for a folder of Parquet or CSV files that is larger than memory: who
    computes: processes, dask, ray, dask://HOST:PORT, ray://HOST:PORT (docs/scale.md)
--resume      switch  -       go on with an interrupted run: the result is the same to the last bit
--force       switch  -       replace a run folder that is there
--no-report   switch  -       do not write report.html
--track TRACKER=WHERE  text*  -  curves and results elsewhere too: tensorboard=FOLDER,
    mlflow=EXPERIMENT, wandb=PROJECT
--fallback    switch  -       keep a device's own model where the fleet's evidence favours it
--unseen      pooled|error  pooled  devices first seen when predicting: one model for all of them,
    or an error (default %(default)s)
"""
SHARD = """
folder           text   needed  a folder of .parquet or .csv files with the same columns
--device COLUMN  text   needed  the column that says whose row it is
--out FOLDER     text   needed  the folder to make, for the shards
--shards N       whole  -       how many (default: as many as keep each at two million rows, 16 at
    least)
--group-rows N   whole  65536   rows of a row group, unless one device has more: what a worker of
    a fit holds at a time (default %(default)s)
--json           switch  -      the result as JSON
"""
HELPERS = f"""{_RUN_FOLDER}
--device ID    text   -   whose helpers (default: the best helper of every device)
--top N        whole  20  how many lines (default %(default)s)
--export FILE  text   -   write all pairs as .csv, or adopted pairs as .graphml
{_VERBATIM}
--json         switch  -  all pairs as JSON
--prove        switch  -  refit without the helpers named for some devices, and without random ones
--contributions  switch  -  refit without each device: who helps the others most; kept in the run
    folder, and shown by persfl report
--table FILE   text    -  the rows of the fit, for both of these: a run folder holds none
--refits N     whole   60  with --contributions: how many devices to leave out at most
    (default %(default)s)
--targets N    whole   12  with --prove: for how many devices (default %(default)s)
--without N    whole   10  with --prove: how many helpers go at a time (default %(default)s)
"""
PREDICT = f"""
run                    text  needed  a run folder of `persfl fit --out`, or a node's folder
--module FILE.py:NAME  text  -       the torch module of a run that was fitted with one of your own
table       text   needed  rows with the same columns (CSV or Parquet); for a run over shards also a
    folder of such files
--out FILE  text   -       a .csv or .parquet file (default: print CSV); for a run over shards a
    folder
--keep A,B  names  ''      columns of the table to write beside row, device and prediction
    (default: all)
--only      switch  -      row, device and prediction, and no other columns
--impute    switch  -      fill missing values with means or most frequent categories of the fit
--device ID  text  -       of a run over shards: the rows of this device alone
--engine NAME  text  processes  of a run over shards: who computes, as for fit (default
    %(default)s)
--jobs N    int    1       of a run over shards: parallel processes (default %(default)s)
--unseen    pooled|error|skip  -  devices that were not there when fitting: one model for all, stop,
    or no prediction (default: as fitted)
--missing   error|skip  error  rows with missing or infinite values: stop, or no prediction (default
    %(default)s)
{_VERBATIM}"""
WATCH = """
run     text    needed  the folder that a fit or a federation writes into, or wrote into
--once  switch  -       say where it is now, and stop
--json  switch  -       as JSON lines
"""
EXPORT = f"""{_RUN_FOLDER}
--onnx FILE     text  -  one ONNX graph for the whole fleet: device and columns in, prediction out
--sklearn FILE  text  -  a plain scikit-learn estimator of one device, as joblib writes it
--card FILE     text  -  a model card in Markdown: data, method, worth, privacy, limits
--device ID     text  -  of --onnx and --sklearn: this device alone
"""
REPORT = f"""{_RUN_FOLDER}
--out FILE  text  -  where (default: report.html in the run folder)
"""
LEAKS = f"""{_RUN_FOLDER}
--table FILE  text    needed  the rows of the fit: a run folder holds none
--epsilon X   float   -       measure this privacy budget, too
--json        switch  -       as JSON
"""
COMPARE = f"""{_TABLE}
--out FILE  text  -  every device's errors as .csv; over seeds also all results as .json
{_VERBATIM}
every method on equal terms, over seeds (linear models; any of these options):
--seeds N         whole  -  deal rows so many times, from --seed on (default 5)
--few N           int    -  rows of each device to learn from, the others to judge by (default: all
    but --holdout; 0: one of every class)
--methods A,B     names  -  some of the names that `persfl methods` lists (default all)
--reference NAME  text   -  the method the others are compared with (default blend)
"""

INIT = """
folder             text   needed     the folder to make
--nodes N          whole  5          how many devices (default %(default)s)
--names A,B        names  ''         their ids (default node-1, node-2, ...)
--categories COLUMN=A,B  levels*  -  the levels of a text column, for all devices; as often as there
    are such columns
--host HOST        text   127.0.0.1  name or address by which nodes reach this machine (default
    %(default)s)
--port PORT        whole  9443       the port nodes come in by (default %(default)s)
--inner-port INNER_PORT  whole  9444  the SuperLink's own port on this machine (default
    %(default)s)
"""
UP = """
folder  text  needed  a federation's folder
"""
FEDERATION_DEMO = """
--out FOLDER  text    needed  the run folder to make
--nodes N     whole   5       how many nodes (default %(default)s)
--rounds N    whole   8       rounds (default %(default)s)
--json        switch  -       progress as JSON lines
"""
NODE = """
--config FOLDER  text    needed  this device's folder, from `persfl federation init`
--data TABLE     text    needed  its rows: .csv, .tsv, .csv.gz or .parquet; numbers, and texts
    whose levels node.toml declares
--label COLUMN   text    needed  the column to predict
--drop A,B       names   ''      columns to leave out
--weight COLUMN  text    -       how much each row counts
--moved          switch  -       its ledger and models are your own, begun on another machine
--check          switch  -       say what will leave this machine, and stop there
"""
FEDERATE = """
folder            text    needed  a federation's folder
--out FOLDER      text    needed  the run folder to make
--resume          switch  -       go on with an interrupted run: the result is the same
--model           linear|mlp|tree|forest|boosting|ridge|network|any  linear  what a model is
    (default %(default)s); any: of each device the family that its node.toml names
--rounds N        whole   -     of methods that go by rounds: how many (default 60)
--peers N         whole   -     of the paper's loop and kin: peers asked per round (default 10)
--classes N       int     0     labels 0 to N - 1 (default 0: a regression)
--method NAME     text    blend  how to learn, as `persfl methods` lists (default %(default)s)
--budget N        whole   640   questions per device, with blend (default %(default)s)
--ordered         switch  -     rows come in the order of time (for blend)
--set KEY=VALUE   setting*  -   a setting of the method, or of the model
--target TABLE    text    -     target at home: this table stays here, only probes go out
--name ID         text    home  what the target at home is called (default %(default)s)
--family NAME     text    linear  with --model any: the family of the target at home (default
    %(default)s)
--label COLUMN    text    -     the label's name; with --target, its column
--step-size X     number  auto  length of a step (default: chosen)
--steps N         whole   1     gradient steps per answer (default %(default)s)
--batch N         whole   -     rows per gradient step (default all)
--points N        int     0     public points: Algorithm 2 (default 100 unless linear)
--units           auto|shared|raw  auto  scale of features and label
--holdout SHARE   float   0.25  rows held back to judge by (default %(default)s)
--deadline S      float   60    seconds a round waits for answers (default %(default)s)
--quorum SHARE    float   0.5   of those asked, who must answer (default %(default)s)
--patience S      float   600   seconds without a quorum (default %(default)s)
--gather S        float   30    seconds to wait for all at the start (default %(default)s)
--need N          int     0     new rows per device before a round (default %(default)s)
--growth X        float   2     guard: new loss at most X times the old (default %(default)s)
--reach X         float   10    guard: step at most X times the usual (default %(default)s)
--seed SEED       int     0     the same seed gives the same result (default %(default)s)
--json            switch  -     progress as JSON lines
"""
LEDGER = """
folder  text    needed  this device's folder
--json  switch  -       as JSON
"""

_SPEC = """
spec             text   needed  the path of a spec, or the name of a built-in one
--set KEY=VALUE  setting*  -    change a setting of every series
"""
_EXPERIMENT = """
--runs RUNS      int     -      independent runs per series (default 12; 3 with --quick)
--rounds ROUNDS  int     -      rounds per run (default: as the spec says)
--quick          switch  -      few runs and rounds: shows that it works, proves nothing
--out FOLDER     text    {out}  where results go (default %(default)s)
--seed SEED      int     {seed}  the same seed gives the same curves (default %(default)s)
--numbers        switch  -      numbers only: no figures, no page, no progress bar
--jobs JOBS      int     cores  parallel processes (default: one per core)
"""
METHODS = """
name    text    -  one of them, with its settings
--json  switch  -  as JSON
"""
REPRODUCE = f"""
figures FIGURE  text*  -  names as listed, or 'all'
{_EXPERIMENT.format(out="reproduction", seed=6)}"""
RUN = f"""{_SPEC}
--data FOLDER  text   -   where the tables are that a comparison names
--only A,B     names  ''  some of the data sets of a comparison
{_EXPERIMENT.format(out="runs", seed=6)}"""
TUNE = f"""{_SPEC}{_EXPERIMENT.format(out="tuned", seed=106)}"""
