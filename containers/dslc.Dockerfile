# All of dslc: compiles for CPUs and GPUs, trains and runs. From the root of a checkout:
#   docker build -f containers/dslc.Dockerfile -t dslc .
#   docker run --rm -v "$PWD:/home/dslc/work" dslc build lenet.nn
#   docker run --rm --gpus all ...            # to run on a GPU; building needs none
FROM python:3.12-slim AS build
WORKDIR /src
COPY LICENSE README.md pyproject.toml ./
COPY wheels wheels
COPY runtime runtime
COPY dsl dsl
COPY compiler compiler
COPY dslc dslc
RUN pip wheel --no-cache-dir --no-deps --config-settings release=true -w /wheels ./wheels .

FROM python:3.12-slim
RUN --mount=type=bind,from=build,source=/wheels,target=/wheels \
    pip install --no-cache-dir --find-links /wheels "dslc[cuda]"
RUN useradd --create-home --uid 1000 dslc && mkdir /home/dslc/work && chown dslc /home/dslc/work
ENV NVIDIA_VISIBLE_DEVICES=all NVIDIA_DRIVER_CAPABILITIES=compute,utility PYTHONUNBUFFERED=1
USER dslc
WORKDIR /home/dslc/work
ENTRYPOINT ["dslc"]
CMD ["--help"]
